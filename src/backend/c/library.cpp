#include "backend/c/library.h"

#include "backend/c/language.h"
#include "backend/c/render.h"
#include "backend/clike/index_text.h"
#include "backend/common/host_workers.h"
#include "support/fail.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>
#include <numeric>
#include <set>

namespace egret::backend::c {

using kernel::Plan;
using kernel::Slot;
using kernel::SlotKind;
using kernel::Step;
using kernel::StepKind;

namespace {

/// Of C and, as the header is read by it too, of C++.
constexpr std::string_view kKeywords[] = {
    "alignas",       "alignof",      "asm",       "auto",     "bool",      "break",
    "case",          "char",         "class",     "const",    "continue",  "default",
    "delete",        "do",           "double",    "else",     "enum",      "extern",
    "false",         "float",        "for",       "goto",     "if",        "inline",
    "int",           "long",         "main",      "new",      "private",   "public",
    "register",      "restrict",     "return",    "short",    "signed",    "sizeof",
    "static",        "struct",       "switch",    "template", "this",      "true",
    "typedef",       "union",        "unix",      "unsigned", "using",     "virtual",
    "void",          "volatile",     "while",     "and",      "and_eq",    "bitand",
    "bitor",         "catch",        "char8_t",   "char16_t", "char32_t",  "compl",
    "concept",       "constexpr",    "decltype",  "explicit", "export",    "friend",
    "linux",         "mutable",      "namespace", "noexcept", "not",       "not_eq",
    "nullptr",       "operator",     "or",        "or_eq",    "protected", "requires",
    "static_assert", "thread_local", "throw",     "try",      "typeid",    "typename",
    "typeof",        "wchar_t",      "xor",       "xor_eq"};

/// Of the headers that the text includes: functions, types and macros. Of math.h also with f and l.
constexpr std::string_view kOfHeaders[] = {"abort",         "abs",
                                           "aligned_alloc", "atexit",
                                           "atof",          "atoi",
                                           "bsearch",       "calloc",
                                           "div",           "exit",
                                           "free",          "getenv",
                                           "labs",          "ldiv",
                                           "llabs",         "malloc",
                                           "memchr",        "memcmp",
                                           "memcpy",        "memmove",
                                           "memset",        "omp_get_max_threads",
                                           "qsort",         "rand",
                                           "realloc",       "srand",
                                           "strcat",        "strchr",
                                           "strcmp",        "strcpy",
                                           "strlen",        "strtod",
                                           "system",        "size_t",
                                           "int8_t",        "int16_t",
                                           "int32_t",       "int64_t",
                                           "uint8_t",       "uint16_t",
                                           "uint32_t",      "uint64_t",
                                           "NULL",          "NAN",
                                           "INFINITY",      "HUGE_VAL",
                                           "isnan",         "isinf",
                                           "isfinite",      "signbit",
                                           "fpclassify",    "offsetof"};
constexpr std::string_view kOfMath[] = {
    "acos",      "acosh",    "asin",    "asinh", "atan",      "atan2",     "atanh",      "cbrt",
    "ceil",      "copysign", "cos",     "cosh",  "erf",       "erfc",      "exp",        "exp2",
    "expm1",     "fabs",     "fdim",    "floor", "fma",       "fmax",      "fmin",       "fmod",
    "frexp",     "gamma",    "hypot",   "ilogb", "j0",        "j1",        "jn",         "ldexp",
    "lgamma",    "llrint",   "llround", "log",   "log10",     "log1p",     "log2",       "logb",
    "lrint",     "lround",   "modf",    "nan",   "nearbyint", "nextafter", "nexttoward", "pow",
    "remainder", "remquo",   "rint",    "round", "scalb",     "scalbln",   "scalbn",     "sin",
    "sinh",      "sqrt",     "tan",     "tanh",  "tgamma",    "trunc",     "y0",         "y1",
    "yn"};

/// Whether a name means something else in the text.
bool is_taken(std::string_view word) {
  const auto in = [](const auto& list, std::string_view one) {
    return std::ranges::find(list, one) != std::end(list);
  };
  return in(kKeywords, word) || in(kOfHeaders, word) || in(kOfMath, word) ||
         ((word.ends_with('f') || word.ends_with('l')) &&
          in(kOfMath, word.substr(0, word.size() - 1))) ||
         word.starts_with("eg_") || word.starts_with("k_") || word.starts_with("omp_");
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

const char* parameter_type(DType type) {
  switch (type) {
  case DType::F32:
    return "float";
  case DType::F64:
    return "double";
  case DType::I8:
    return "int8_t";
  case DType::I16:
    return "int16_t";
  case DType::I32:
    return "int32_t";
  case DType::I64:
    return "int64_t";
  default:
    break; // no C type has their values: their bits
  }
  switch (size_of(type)) {
  case 1:
    return "uint8_t";
  case 2:
    return "uint16_t";
  case 4:
    return "uint32_t";
  default:
    return "uint64_t";
  }
}

/// What callers must know of a type that has no name in C.
std::string_view note_of(DType type) {
  switch (type) {
  case DType::Bool:
    return ", 0 or 1";
  case DType::F16:
  case DType::BF16:
  case DType::F8E4M3:
  case DType::F8E5M2:
    return ", as bits";
  default:
    return "";
  }
}

/// Names of parameters: identifiers, each once.
class Names {
public:
  /// `library`: what the functions and the enumerators of its header begin with.
  Names(std::size_t dims, const std::string& library) : used_{"memory", "bytes"} {
    for (const char* end : {"", "_memory", "_OK", "_BAD_SIZE", "_NO_MEMORY"})
      used_.insert(library + end);
    for (std::size_t d = 0; d < dims; ++d)
      used_.insert(fmt::format("d{}", d)); // what IndexText calls them
  }

  std::string take(std::string_view wanted, std::string_view otherwise) {
    std::string name;
    for (char c : wanted.substr(0, 60))
      name += is_letter(c) || is_digit(c) ? c : '_';
    if (name.empty() || name.find_first_not_of('_') == std::string::npos)
      name = otherwise;
    if (!is_letter(name.front()))
      name = "p" + name;
    if (is_taken(name))
      name = "p_" + name;
    std::string one = name;
    for (int n = 2; !used_.insert(one).second; ++n)
      one = fmt::format("{}_{}", name, n);
    return one;
  }

private:
  std::set<std::string, std::less<>> used_;
};

std::string words_of(std::span<const std::byte> bytes) {
  std::string text;
  text.reserve(bytes.size() * 5 / 2 + 64);
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<std::size_t>(8, bytes.size() - at));
    fmt::format_to(std::back_inserter(text), "{}0x{:x}u,", at % 64 == 0 ? "\n  " : " ", word);
  }
  return text;
}

class LibraryRenderer {
public:
  LibraryRenderer(const Plan& plan, const ir::Graph& graph, const LibraryInterface& interface)
      : plan_(plan), graph_(graph), interface_(interface),
        names_(plan.dims.size(), interface.name) {
    dims_only_.name = interface.name;
    dims_only_.dims = plan.dims;
  }

  LibraryText run();

private:
  struct Parameter {
    std::string declaration, note;
  };

  std::string number(const Expr& e) const { return index_.wide_text(e); }
  const ir::Node& input(std::size_t slot) const { return graph_[graph_.inputs()[slot]]; }
  std::string type_text(DType type, const Shape& shape) const;
  void name_parameters();
  void name_inputs();
  void name_results();
  std::string value(std::span<const std::byte> bytes);
  std::string address(const Slot& slot) const;
  std::string bytes_of(const LibraryInterface::Result& result) const;
  std::string dims_text() const;
  std::string guards_text() const;
  std::string sizes_text() const;
  Expr by_plan_dims(const Expr& e, const kernel::KernelProgram& program, const Step& step) const;
  std::string launch_text(const Step& step) const;
  std::string results_text() const;
  std::string number_type(const LibraryInterface::Result& result) const;
  std::string kernels_text() const;
  std::string size_parameters() const; ///< of NAME_memory
  std::string parameters_text() const;
  std::string header() const;

  const Plan& plan_;
  const ir::Graph& graph_;
  const LibraryInterface& interface_;
  Names names_;
  kernel::KernelProgram dims_only_; ///< for the texts of sizes
  CLanguage language_;
  clike::IndexText index_{dims_only_, language_,
                          [](kernel::ValueId, int) { return std::string(); }};

  std::vector<Parameter> parameters_;
  std::vector<std::string> dims_, inputs_; ///< names by dim of the plan and input; or of a value
  std::vector<std::string> results_;       ///< names by result
  std::vector<std::string> fixed_;         ///< by result: where it stands if it is bytes
  std::vector<std::string> outputs_;       ///< address by output of the plan
  std::string values_;
  int value_count_ = 0;
};

std::string LibraryRenderer::type_text(DType type, const Shape& shape) const {
  return name_of(type) + to_string(shape) + std::string(note_of(type));
}

// Bytes that are part of the library.
std::string LibraryRenderer::value(std::span<const std::byte> bytes) {
  if (bytes.empty())
    return "0";
  const std::string name = fmt::format("eg_value{}", value_count_++);
  values_ += fmt::format("static const _Alignas(64) uint64_t {}[{}] = {{{}\n}};\n", name,
                         (bytes.size() + 7) / 8, words_of(bytes));
  return name;
}

void LibraryRenderer::name_parameters() {
  for (const Expr& dim : plan_.dims) {
    dims_.push_back(names_.take(dim.str(), "size"));
    parameters_.push_back(
        {"int64_t " + dims_.back(),
         fmt::format("a size from {} to {}{}", dim.lower(), dim.upper(),
                     dim.divisor() > 1 ? fmt::format(", a multiple of {}", dim.divisor()) : "")});
  }
  name_inputs();
  name_results();
}

void LibraryRenderer::name_inputs() {
  std::vector<bool> replaced(interface_.inputs.size());
  for (const Slot& slot : plan_.slots)
    if (slot.kind == SlotKind::State)
      replaced.at(static_cast<std::size_t>(slot.input)) = true;
  std::vector<std::size_t> order(interface_.inputs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {},
                           [&](std::size_t slot) { return interface_.inputs[slot].place; });
  inputs_.resize(order.size());
  for (const std::size_t slot : order) {
    const LibraryInterface::Input& given = interface_.inputs[slot];
    std::string& name = inputs_[slot];
    const ir::Node& node = input(slot);
    if (given.value) {
      std::uint64_t bits = 0;
      if (node.attrs.by_value)
        std::memcpy(&bits, given.value->data(), std::min(sizeof bits, given.value->size()));
      ensure(!replaced[slot], "a state is part of a library");
      name = node.attrs.by_value ? fmt::format("0x{:x}u", bits) : value(*given.value);
      continue;
    }
    name = names_.take(given.name, fmt::format("input{}", slot));
    const char* type = parameter_type(node.dtype);
    const std::string text = type_text(node.dtype, node.shape);
    if (node.attrs.by_value)
      parameters_.push_back({fmt::format("{} {}", type, name), text + ", by value"});
    else if (replaced[slot])
      parameters_.push_back({fmt::format("{}* {}", type, name), text + ", read and replaced"});
    else
      parameters_.push_back({fmt::format("const {}* {}", type, name), text + ", read"});
  }
}

void LibraryRenderer::name_results() {
  outputs_.resize(plan_.output_slots.size());
  for (std::size_t output = 0; output < outputs_.size(); ++output) {
    const Slot& slot = plan_.slots[static_cast<std::size_t>(plan_.output_slots[output])];
    if (slot.kind == SlotKind::State)
      outputs_[output] = inputs_.at(static_cast<std::size_t>(slot.input));
  }
  for (std::size_t r = 0; r < interface_.results.size(); ++r) {
    const LibraryInterface::Result& result = interface_.results[r];
    results_.push_back(names_.take(result.name, fmt::format("result{}", r)));
    parameters_.push_back({fmt::format("{}* {}", parameter_type(result.dtype), results_.back()),
                           type_text(result.dtype, result.shape) + ", written"});
    fixed_.push_back(result.kind == LibraryInterface::Result::Kind::Value ? value(result.value)
                                                                          : "");
    if (result.kind == LibraryInterface::Result::Kind::Output)
      if (std::string& address = outputs_.at(result.number); address.empty())
        address = results_.back();
  }
  for (const std::string& address : outputs_)
    ensure(!address.empty(), "library {}: nobody takes an output", interface_.name);
}

std::string LibraryRenderer::address(const Slot& slot) const {
  switch (slot.kind) {
  case SlotKind::Input:
    return inputs_.at(static_cast<std::size_t>(slot.number));
  case SlotKind::State:
    return inputs_.at(static_cast<std::size_t>(slot.input));
  case SlotKind::Output:
    return outputs_.at(static_cast<std::size_t>(slot.number));
  case SlotKind::Arena:
    break;
  }
  return fmt::format("eg_arena + {}", number(slot.offset));
}

std::string LibraryRenderer::dims_text() const {
  std::string text;
  for (std::size_t d = 0; d < plan_.dims.size(); ++d) {
    const char* type = clike::IndexText::fits(plan_.dims[d]) ? "int" : "long long";
    text += fmt::format("  const {0} d{1} = ({0}){2};\n", type, d, dims_[d]);
  }
  for (std::size_t d = 0; d < plan_.dims.size(); ++d)
    text += fmt::format("  (void)d{};\n", d);
  return text;
}

std::string LibraryRenderer::guards_text() const {
  std::string text;
  for (std::size_t d = 0; d < plan_.dims.size(); ++d) {
    const Expr& dim = plan_.dims[d];
    text += fmt::format("  if ({0} < {1}LL || {0} > {2}LL{3}) return {4}_BAD_SIZE;\n", dims_[d],
                        dim.lower(), dim.upper(),
                        dim.divisor() > 1 ? fmt::format(" || {} % {} != 0", dims_[d], dim.divisor())
                                          : "",
                        interface_.name);
  }
  std::string more;
  for (const kernel::PlanGuard& guard : plan_.guards)
    more += fmt::format("  if ({0} < {1} || {0} >= {2}) return {3}_BAD_SIZE;\n",
                        number(guard.condition.value), number(guard.condition.lo),
                        number(guard.condition.hi), interface_.name);
  return text + dims_text() + more;
}

// An expression over the dims of a launch's kernel, over those of the plan.
Expr LibraryRenderer::by_plan_dims(const Expr& e, const kernel::KernelProgram& program,
                                   const Step& step) const {
  return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
    const auto at = std::ranges::find(program.dims, v);
    if (at == program.dims.end())
      return std::nullopt;
    const int dim = step.dims[static_cast<std::size_t>(at - program.dims.begin())];
    return plan_.dims[static_cast<std::size_t>(dim)];
  });
}

// Bytes of a worker's memory, the most that a launch needs.
std::string LibraryRenderer::sizes_text() const {
  std::set<std::string> seen;
  std::string text = "  size_t eg_share = 0;\n";
  for (const Step& step : plan_.steps) {
    if (step.kind != StepKind::Launch)
      continue;
    const kernel::KernelProgram& program =
        plan_.kernels[static_cast<std::size_t>(step.kernel)].program;
    const Expr bytes = by_plan_dims(worker_bytes(program), program, step);
    if (bytes == Expr(0) || !seen.insert(number(bytes)).second)
      continue;
    text += fmt::format("  if ((size_t){0} > eg_share) eg_share = (size_t){0};\n", number(bytes));
  }
  return text + fmt::format("  const size_t eg_arena_bytes = ((size_t){} + 63) / 64 * 64;\n",
                            number(plan_.arena_bytes));
}

std::string LibraryRenderer::launch_text(const Step& step) const {
  if (step.kind == StepKind::Copy) {
    const Slot& from = plan_.slots[static_cast<std::size_t>(step.slots[0])];
    const Slot& to = plan_.slots[static_cast<std::size_t>(step.slots[1])];
    return fmt::format("  memcpy((void*)({}), (const void*)({}), (size_t){});\n", address(to),
                       address(from), number(from.bytes));
  }
  if (step.kind != StepKind::Launch)
    return {};
  const kernel::KernelProgram& program =
      plan_.kernels[static_cast<std::size_t>(step.kernel)].program;
  std::string text = "  {\n";
  std::string pointers, dims, scalars;
  for (std::size_t i = 0; i < step.slots.size(); ++i) {
    const std::string from = address(plan_.slots[static_cast<std::size_t>(step.slots[i])]);
    const std::int64_t offset = kernel::offset_of(step, i);
    pointers += fmt::format("{}(char*)({}){}", i ? ", " : "", from,
                            offset ? fmt::format(" + {}", offset) : "");
  }
  for (std::size_t i = 0; i < step.dims.size(); ++i)
    dims += fmt::format("{}d{}", i ? ", " : "", step.dims[i]);
  std::string fill;
  for (std::size_t i = 0; i < step.scalars.size(); ++i) {
    const auto slot = static_cast<std::size_t>(step.scalars[i]);
    const bool known = interface_.inputs[slot].value.has_value();
    scalars += fmt::format("{}{}", i ? ", " : "", known ? inputs_[slot] : "0");
    if (!known)
      fill += fmt::format("    memcpy(&eg_scalars[{0}], &{1}, sizeof {1});\n", i, inputs_[slot]);
  }
  if (!pointers.empty())
    text += fmt::format("    void* const eg_pointers[] = {{{}}};\n", pointers);
  if (!dims.empty())
    text += fmt::format("    const int64_t eg_dims[] = {{{}}};\n", dims);
  if (!scalars.empty())
    text += fmt::format("    uint64_t eg_scalars[] = {{{}}};\n{}", scalars, fill);
  const Expr workers = by_plan_dims(program.launch.workers, program, step);
  text += fmt::format("    eg_launch({}, {}, {}, {}, &eg_pool, {});\n  }}\n",
                      clike::kernel_symbol(program), pointers.empty() ? "0" : "eg_pointers",
                      dims.empty() ? "0" : "eg_dims", scalars.empty() ? "0" : "eg_scalars",
                      number(workers));
  return text;
}

std::string LibraryRenderer::bytes_of(const LibraryInterface::Result& result) const {
  return number(element_count(result.shape) *
                Expr(static_cast<std::int64_t>(size_of(result.dtype))));
}

// What is given and was not written by a kernel where it is wanted.
std::string LibraryRenderer::results_text() const {
  using Kind = LibraryInterface::Result::Kind;
  std::string text;
  for (std::size_t r = 0; r < results_.size(); ++r) {
    const LibraryInterface::Result& result = interface_.results[r];
    const std::string& from = result.kind == Kind::Output  ? outputs_[result.number]
                              : result.kind == Kind::Input ? inputs_.at(result.number)
                                                           : fixed_[r];
    if (from == results_[r] || element_count(result.shape) == Expr(0))
      continue;
    if (result.kind == Kind::Input && input(result.number).attrs.by_value)
      text +=
          fmt::format("  {{\n    const {} eg_number = ({}){};\n    memcpy({}, &eg_number, sizeof "
                      "eg_number);\n  }}\n",
                      number_type(result), number_type(result), from, results_[r]);
    else
      text += fmt::format("  memcpy({}, {}, (size_t){});\n", results_[r], from, bytes_of(result));
  }
  return text;
}

// A number's parameter has its type; one that is part of the library is given as bits.
std::string LibraryRenderer::number_type(const LibraryInterface::Result& result) const {
  if (!interface_.inputs[result.number].value)
    return parameter_type(result.dtype);
  return fmt::format("uint{}_t", 8 * size_of(result.dtype));
}

std::string LibraryRenderer::kernels_text() const {
  std::string text;
  for (const kernel::KernelEntry& entry : plan_.kernels)
    text += render_c(entry.program, Linkage::Internal);
  return text;
}

std::string LibraryRenderer::size_parameters() const {
  std::string text;
  for (const std::string& dim : dims_)
    text += fmt::format("{}int64_t {}", text.empty() ? "" : ", ", dim);
  return text.empty() ? "void" : text;
}

std::string LibraryRenderer::parameters_text() const {
  std::string text;
  for (const Parameter& parameter : parameters_)
    text += parameter.declaration + ", ";
  return text + "void* memory, size_t bytes";
}

std::string LibraryRenderer::header() const {
  std::string about;
  for (const Parameter& parameter : parameters_)
    about +=
        fmt::format("     {}: {}\n", parameter.declaration, clike::comment_text(parameter.note));
  return fmt::format(R"(#ifndef EGRET_LIBRARY_{0}_H
#define EGRET_LIBRARY_{0}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* Made by egret. Compile with
     cc -O3 -std=c11 -ffp-contract=off -fwrapv -fno-strict-aliasing -c {0}.c
   and link with -lm. With -fopenmp it uses the threads of OpenMP; results have the same bits.
   Several calls may run at once, each with memory of its own. */

enum {{
  {0}_OK = 0,
  {0}_BAD_SIZE = 1, /* a size is none that the library was made for */
  {0}_NO_MEMORY = 2 /* `bytes` are too few, or malloc gave none */
}};

/* Bytes for intermediate values. */
size_t {0}_memory({2});

/* Arrays are dense, row-major, and those that are written overlap no other one.
{1}     void* memory: {0}_memory() bytes, aligned to 64; null: the function allocates and frees them
     size_t bytes: of `memory` */
int {0}({3});

#ifdef __cplusplus
}}
#endif

#endif
)",
                     interface_.name, about, size_parameters(), parameters_text());
}

// How a kernel is run by all workers that there is memory for.
constexpr std::string_view kLaunch = R"(
struct EgretPool {
  char* memory; /* 64 bytes for each worker, then `share` bytes for each */
  int64_t workers;
  size_t share;
};

static inline void eg_wait(void* barrier) {
  (void)barrier;
#ifdef _OPENMP
#pragma omp barrier
#endif
}

static int64_t eg_threads(void) {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

static inline void eg_launch(void (*kernel)(const struct EgretArgs*, int64_t, int64_t),
                      void* const* pointers, const int64_t* dims, const uint64_t* scalars,
                      const struct EgretPool* pool, int64_t useful) {
  void** const places = (void**)(void*)pool->memory;
  const int64_t wanted = useful < pool->workers ? useful : pool->workers;
  const int64_t workers = wanted < 1 ? 1 : wanted;
  for (int64_t w = 0; w < workers; ++w)
    places[w] = pool->memory + (size_t)pool->workers * 64 + (size_t)w * pool->share;
  const struct EgretArgs args = {pointers, dims, scalars, places, 0, eg_wait};
#ifdef _OPENMP
  if (workers > 1) {
#pragma omp parallel num_threads((int)workers)
    kernel(&args, omp_get_thread_num(), omp_get_num_threads());
    return;
  }
#endif
  kernel(&args, 0, 1);
}
)";

LibraryText LibraryRenderer::run() {
  name_parameters();
  std::string steps;
  for (const Step& step : plan_.steps)
    steps += launch_text(step);
  const std::string& name = interface_.name;
  std::string code = fmt::format(
      "size_t {0}_memory({1}) {{\n{2}{3}  return eg_arena_bytes + (size_t)eg_threads() * (64 + "
      "eg_share);\n}}\n\n",
      name, size_parameters(), dims_text(), sizes_text());
  code += fmt::format("int {}({}) {{\n{}{}", name, parameters_text(), guards_text(), sizes_text());
  code += fmt::format(R"(  int64_t eg_workers = eg_threads();
  void* eg_own = 0;
  if (!memory) {{
    bytes = eg_arena_bytes + (size_t)eg_workers * (64 + eg_share);
    eg_own = memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) return {0}_NO_MEMORY;
  }}
  if (bytes < eg_arena_bytes + 64 + eg_share) return {0}_NO_MEMORY;
  if ((int64_t)((bytes - eg_arena_bytes) / (64 + eg_share)) < eg_workers)
    eg_workers = (int64_t)((bytes - eg_arena_bytes) / (64 + eg_share));
  char* const eg_arena = (char*)memory;
  const struct EgretPool eg_pool = {{eg_arena + eg_arena_bytes, eg_workers, eg_share}};
  (void)eg_pool;
)",
                      name);
  code += steps + results_text() + fmt::format("  free(eg_own);\n  return {}_OK;\n}}\n", name);

  LibraryText text;
  text.header = header();
  text.source =
      "#include <stdlib.h>\n#include <string.h>\n#ifdef _OPENMP\n#include <omp.h>\n#endif\n";
  text.source += std::string(text_head()) + kernels_text() + std::string(kLaunch);
  text.source += clike::prelude_for(code, prelude_pieces());
  text.source += values_ + "\n" + code;
  return text;
}

} // namespace

bool is_function_name(std::string_view word) {
  return !word.empty() && word.size() <= 63 && is_letter(word.front()) && !is_taken(word) &&
         std::ranges::all_of(word, [](char c) { return is_letter(c) || is_digit(c) || c == '_'; });
}

LibraryText render_library(const Plan& plan, const ir::Graph& graph,
                           const LibraryInterface& interface) {
  if (!is_function_name(interface.name))
    fail(ErrorKind::Value,
         "library: {} is no name of a C function: letters, digits and underscores, from a letter "
         "on, and no keyword",
         interface.name);
  ensure(interface.inputs.size() == graph.inputs().size(), "a library of {} inputs is told of {}",
         graph.inputs().size(), interface.inputs.size());
  return LibraryRenderer(plan, graph, interface).run();
}

} // namespace egret::backend::c
