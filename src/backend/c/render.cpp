#include "backend/c/render.h"

#include "backend/c/renderer.h"
#include "support/fail.h"

#include <cctype>

namespace egret::backend::c {

using kernel::Bind;
using kernel::Buffer;
using kernel::For;
using kernel::KernelProgram;
using kernel::Space;

namespace {

const CLanguage c_language;

constexpr std::string_view kHead = R"(#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#ifndef EGRET_ARGS
#define EGRET_ARGS
/* How a kernel is called: k_NAME(&args, worker, workers) once for each worker from 0 to
   workers - 1, at the same time where `wait` is used; worker 0 of 1 does all of the work. Compile
   without contraction, with signed integers that wrap and without type-based alias analysis:
   cc -O2 -std=c11 -ffp-contract=off -fwrapv -fno-strict-aliasing */
struct EgretArgs {
  void* const* pointers;      /* the arguments in order, then the workspaces */
  const int64_t* dims;        /* the sizes that are known only now */
  const uint64_t* scalars;    /* arguments by value, in the low bytes */
  void* const* worker_memory; /* by worker, aligned to 64 bytes; may be null if none is used */
  void* barrier;              /* what `wait` is given */
  void (*wait)(void*);        /* returns when all workers have called it; unused for one worker */
};
#endif
)";

/// Whether the text has the word.
bool mentions(const std::string& text, const std::string& word) {
  const auto part = [&](std::size_t at) {
    return at < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
  };
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    if ((at == 0 || !part(at - 1)) && !part(at + word.size()))
      return true;
  return false;
}

} // namespace

std::string_view text_head() {
  return kHead;
}

std::string render_c(const KernelProgram& program, Linkage linkage) {
  return CRenderer(program, linkage).run();
}

CRenderer::CRenderer(const KernelProgram& program, Linkage linkage)
    : Renderer(program, c_language), linkage_(linkage), live_(live_in(program)),
      values_(program.values.size()) {}

std::string CRenderer::run() {
  ensure(program_.launch.threads == 0, "c renderer: kernel {} is a GPU's", program_.name);
  check_requirements();
  for (std::size_t v = 0; v < program_.variables.size(); ++v) {
    const kernel::Type& type = program_.variables[v];
    if (!live_.variables[v])
      continue;
    if (type.lanes == 1)
      line("{} r{} = 0;", clike::register_type(type.dtype), v);
    else
      line("{} r{}[{}] = {{0}};", clike::register_type(type.dtype), v, type.lanes);
  }
  block(program_.body);
  std::string body = std::move(out_);
  out_.clear();
  body = prologue(body) + body;
  const std::string symbol = clike::kernel_symbol(program_);
  const std::string function =
      fmt::format("void {}(const struct EgretArgs* args, int64_t worker, int64_t workers)", symbol);
  return fmt::format(
      "{0}{1}\n#ifndef HAS_{2}\n#define HAS_{2}\n/* {3} */\n{4} {{\n{5}}}\n#endif\n\n", kHead,
      clike::prelude_for(body, prelude_pieces()), symbol, clike::comment_text(program_.name),
      linkage_ == Linkage::Internal ? "static " + function : fmt::format("{0};\n{0}", function),
      body);
}

void CRenderer::check_requirements() const {
  for (const kernel::Capability needed : requirements_of(program_))
    fail(ErrorKind::Unsupported, "c: kernel {} asks for what C has not: {}", program_.name,
         name_of(needed));
}

// What the body uses of the arguments.
std::string CRenderer::prologue(const std::string& body) {
  std::string buffers;
  int place = 0;
  std::swap(out_, buffers);
  for (Space space : {Space::Argument, Space::Workspace, Space::Worker})
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      const Buffer& buffer = program_.buffers[b];
      if (buffer.space != space)
        continue;
      const int number = place++;
      if (!mentions(body, fmt::format("b{}", b)))
        continue;
      const char* constant = buffer.written ? "" : "const ";
      const char* type = clike::memory_type(buffer.dtype);
      if (space == Space::Worker)
        line("{0}{1}* const b{2} = (void*)((char*)args->worker_memory[worker] + {3}); /* {4} */",
             constant, type, b, worker_offset(b), clike::comment_text(buffer.name));
      else
        line("{0}{1}* const b{2} = args->pointers[{3}]; /* {4} */", constant, type, b, number,
             clike::comment_text(buffer.name));
    }
  std::swap(out_, buffers);
  for (std::size_t d = 0; d < program_.dims.size(); ++d)
    if (const std::string name = fmt::format("d{}", d);
        mentions(body, name) || mentions(buffers, name)) {
      const char* type = clike::IndexText::fits(program_.dims[d]) ? "int" : "long long";
      line("const {0} d{1} = ({0})args->dims[{1}]; /* {2} */", type, d,
           clike::comment_text(program_.dims[d].str()));
    }
  std::string text = std::move(out_) + buffers;
  out_.clear();
  for (const char* parameter : {"args", "worker", "workers"})
    if (!mentions(text, parameter) && !mentions(body, parameter)) {
      line("(void){};", parameter);
      text += std::move(out_);
      out_.clear();
    }
  return text;
}

// Worker buffers lie one behind the other, each at a multiple of 64 bytes.
std::string CRenderer::worker_offset(std::size_t buffer) const {
  Expr bytes = 0;
  for (std::size_t b = 0; b < buffer; ++b)
    if (const Buffer& before = program_.buffers[b]; before.space == Space::Worker)
      bytes =
          bytes +
          ceildiv(before.elements * Expr(static_cast<std::int64_t>(size_of(before.dtype))), 64) *
              64;
  return index_.wide_text(bytes);
}

void CRenderer::assign(const kernel::Assign& stmt) {
  const auto v = static_cast<std::size_t>(stmt.variable);
  if (!live_.variables[v])
    return;
  if (const int lanes = program_.variables[v].lanes; lanes == 1)
    line("r{} = {};", v, lane_text(stmt.value, 0));
  else
    line("for (int l = 0; l < {}; ++l) r{}[l] = {};", lanes, v,
         lane_text(stmt.value, clike::kEachLane));
}

void CRenderer::loop(const For& stmt) {
  ensure(stmt.bind != Bind::Grid, "c renderer: kernel {} has a loop over blocks", program_.name);
  if (stmt.bind == Bind::Core)
    return core_loop(stmt);
  open(fmt::format("for ({0} i{1} = {2}; i{1} < {3}; i{1} += {4})",
                   clike::IndexText::type_of(stmt.extent), stmt.number, index_.text(stmt.begin),
                   index_.text(stmt.end), index_.text(stmt.step)));
  block(stmt.body);
  close();
}

// Each worker takes a contiguous piece of the iterations.
void CRenderer::core_loop(const For& stmt) {
  ensure(!in_core_loop_, "kernel {}: a core loop inside of a core loop", program_.name);
  const std::string count = index_.text(max(ceildiv(stmt.end - stmt.begin, stmt.step), 0));
  const std::string begin = stmt.begin == Expr(0) ? "" : index_.text(stmt.begin) + " + ";
  const std::string step = stmt.step == Expr(1) ? "" : " * " + index_.text(stmt.step);
  const int n = names_++;
  line("{{");
  ++depth_;
  for (const auto& [name, worker] : {std::pair("from", "worker"), {"to", "worker + 1"}})
    line("const long long {}{} = {}eg_share({}, {}, workers){};", name, n, begin, count, worker,
         step);
  // The last piece may end beyond the end, by less than a step.
  open(fmt::format("for ({0} i{1} = ({0})from{2}; i{1} < to{2} && i{1} < {3}; i{1} += {4})",
                   clike::IndexText::type_of(stmt.extent), stmt.number, n, index_.text(stmt.end),
                   index_.text(stmt.step)));
  in_core_loop_ = true;
  block(stmt.body);
  in_core_loop_ = false;
  close();
  close();
}

void CRenderer::barrier() {
  line("if (workers > 1) args->wait(args->barrier);");
}

void CRenderer::intrinsic(const kernel::Intrinsic& use) {
  // Plain C has no word for a prefetch, which nothing depends on.
  ensure(use.id == kernel::IntrinsicId::Prefetch, "kernel {}: {} in a program of a CPU",
         program_.name, info_of(use.id).name);
}

void CRenderer::acquire(const kernel::Acquire& stmt) {
  intrinsic(stmt.by);
}

std::string CRenderer::table(const char* type, const std::vector<std::string>& values) {
  std::string name = fmt::format("eg_table{}", names_++);
  line("static const {} {}[{}] = {{{}}};", type, name, values.size(), fmt::join(values, ", "));
  return name;
}

std::string CRenderer::argument_pointer(const kernel::Buffer& /*buffer*/,
                                        const std::string& number) const {
  return fmt::format("args->pointers[{}]", number);
}

} // namespace egret::backend::c
