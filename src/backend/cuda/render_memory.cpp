// Loads and stores: lanes that lie one after the other go in accesses of up to 16 bytes.
#include "backend/cuda/renderer.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace egret::backend::cuda {

using kernel::Address;
using kernel::Buffer;
using kernel::CachePolicy;
using kernel::Space;
using kernel::Store;
using kernel::Type;
using kernel::ValueId;

namespace {

bool depends_on_lane(const Expr& e, const kernel::KernelProgram& program) {
  auto variables = variables_of(e);
  return std::any_of(variables.begin(), variables.end(), [&](const Expr& v) {
    auto id = kernel::value_of(v);
    return kernel::lanes_of(v) || (id && program.values[static_cast<std::size_t>(*id)].lanes > 1);
  });
}

std::int64_t power_of_two_in(std::int64_t n, std::int64_t most) {
  std::int64_t p = 1;
  while (p < most && n % (2 * p) == 0)
    p *= 2;
  return p;
}

/// The words of a 16-, 8- or 4-byte access, by element: `size` bytes from word `word` on.
std::string from_words(DType type, const std::string& words, std::size_t byte) {
  const std::size_t size = size_of(type);
  const std::string word = fmt::format("{}[{}]", words, byte / 4);
  switch (size) {
  case 1:
    return type == DType::Bool
               ? fmt::format("(({} >> {}) & 255u) != 0", word, byte % 4 * 8)
               : fmt::format("({})({} >> {})", register_type(type), word, byte % 4 * 8);
  case 2:
    return byte % 4 == 0 ? fmt::format("({}){}", register_type(type), word)
                         : fmt::format("({})({} >> 16)", register_type(type), word);
  case 4:
    return type == DType::F32 ? fmt::format("__uint_as_float({})", word)
                              : fmt::format("({}){}", register_type(type), word);
  default: {
    std::string both = fmt::format("((unsigned long long){} | ((unsigned long long){}[{}] << 32))",
                                   word, words, byte / 4 + 1);
    return type == DType::F64 ? fmt::format("__longlong_as_double((long long){})", both)
                              : fmt::format("({}){}", register_type(type), both);
  }
  }
}

/// The bits of an element as an unsigned number, for sizes up to 4.
std::string bits_of(DType type, const std::string& value) {
  switch (type) {
  case DType::F32:
    return fmt::format("__float_as_uint({})", value);
  case DType::I8:
    return fmt::format("(unsigned)(unsigned char){}", value);
  case DType::I16:
    return fmt::format("(unsigned)(unsigned short){}", value);
  default:
    return fmt::format("(unsigned){}", value);
  }
}

const char* vector_type(int bytes) {
  return bytes == 16 ? "uint4" : bytes == 8 ? "uint2" : bytes == 4 ? "unsigned" : "unsigned short";
}

std::string guarded(const std::string& condition, const std::string& text) {
  return condition.empty() ? text : fmt::format("if ({}) {}", condition, text);
}

} // namespace

std::string CudaRenderer::element(int buffer, const Expr& e, int lane) const {
  return fmt::format("b{}[{}]", buffer, index_.text(e, lane));
}

bool CudaRenderer::is_read_only(const Buffer& b) const {
  return (b.space == Space::Argument || b.space == Space::Problem) && !b.written && !b.aliased;
}

// Memory that nobody writes while the kernel runs may go through the read-only path. A kernel that
// is launched early runs while those before it write: lines of that path would not see it. It loads
// as usual, but out of loops and across stores.
std::string CudaRenderer::read(int buffer, const std::string& place, CachePolicy policy,
                               bool masked) const {
  const Buffer& b = program_.buffers[static_cast<std::size_t>(buffer)];
  if (b.space == Space::Shared)
    return place;
  if (policy == CachePolicy::Streaming || policy == CachePolicy::EvictFirst)
    return fmt::format("__ldcs(&{})", place);
  if (is_read_only(b))
    return fmt::format("{}(&{})",
                       !target_.launches_early() ? "__ldg"
                       : masked                  ? "eg_load_here"
                                                 : "eg_load",
                       place);
  return place;
}

namespace {

// The buffers that a block loads from, but not in what may not be run of it. `within` a problem:
// whose own buffers are not known outside of it.
void collect_loads(const kernel::Block& block, const kernel::KernelProgram& program, bool within,
                   std::set<int>& buffers) {
  for (const kernel::Stmt& stmt : block)
    if (const auto* let = kernel::get_if<kernel::Let>(stmt)) {
      const auto* load = kernel::get_if<kernel::inst::Load>(let->inst);
      if (load && load->mask.empty() &&
          !(within &&
            program.buffers[static_cast<std::size_t>(load->from.buffer)].space == Space::Problem))
        buffers.insert(load->from.buffer);
    } else if (const auto* loop = kernel::get_if<kernel::For>(stmt)) {
      collect_loads(loop->body, program, within, buffers);
    } else if (const auto* problem = kernel::get_if<kernel::InProblem>(stmt)) {
      collect_loads(problem->body, program, true, buffers);
    }
}

} // namespace

// A compiler takes a load without side effects for one that may be done anywhere, also where its
// address is none. What is loaded in a branch comes from pointers that are known in the branch.
void CudaRenderer::enter_branch(const kernel::Block& body) {
  if (!target_.launches_early())
    return;
  std::set<int> buffers;
  collect_loads(body, program_, false, buffers);
  for (const int b : buffers) {
    const Buffer& buffer = program_.buffers[static_cast<std::size_t>(b)];
    if (!is_read_only(buffer))
      continue;
    const int n = names_++;
    line("const {0}* const eg_known{1} = (const {0}*)eg_after_wait((void*)b{2});",
         memory_type(buffer.dtype), n, b);
    line("const {0}* {3}b{1} = eg_known{2};", memory_type(buffer.dtype), b, n,
         has_settled(program_) ? "" : "const ");
  }
}

CudaRenderer::Access CudaRenderer::access_of(const Address& at, int lanes) const {
  Access access{IndexText::at_lane(at.index, 0), 0};
  for (const Expr& v : variables_of(at.index))
    if (auto id = kernel::value_of(v);
        id && program_.values[static_cast<std::size_t>(*id)].lanes > 1)
      return access;
  for (int l = 1; l < lanes; ++l)
    if (!(IndexText::at_lane(at.index, l) == access.base + Expr(l)))
      return access;
  const Buffer& buffer = program_.buffers[static_cast<std::size_t>(at.buffer)];
  const auto size = static_cast<std::int64_t>(size_of(buffer.dtype));
  const std::int64_t step = access.base.divisor();
  std::int64_t known = std::gcd(step == 0 ? 16 : (step % 16) * size, std::int64_t{16});
  if (known == 0)
    known = 16;
  known = std::gcd(known, buffer.alignment);
  access.bytes = static_cast<int>(power_of_two_in(known, std::min<std::int64_t>(16, lanes * size)));
  return access;
}

/// The guards without those lanes that pass and fail together: between bounds that are multiples of
/// the lanes, as the first lane is.
std::vector<Guard> CudaRenderer::without_lanes(const std::vector<Guard>& mask, int lanes) const {
  std::vector<Guard> out;
  for (const Guard& g : mask) {
    Expr first = IndexText::at_lane(g.value, 0), lo = IndexText::at_lane(g.lo, 0),
         hi = IndexText::at_lane(g.hi, 0);
    bool together = depends_on_lane(g.value, program_) && !depends_on_lane(g.lo, program_) &&
                    !depends_on_lane(g.hi, program_) && first.divisor() % lanes == 0 &&
                    lo.divisor() % lanes == 0 && hi.divisor() % lanes == 0;
    for (int l = 1; l < lanes && together; ++l)
      together = IndexText::at_lane(g.value, l) == first + Expr(l);
    out.push_back(together ? Guard{first, lo, hi} : g);
  }
  return out;
}

/// A condition that holds where the guards hold in all lanes: guards are affine in the lane, so the
/// first and the last lane decide. Empty when it always does; "?" when that cannot be said.
std::string CudaRenderer::all_lanes(const std::vector<Guard>& mask, int lanes) const {
  std::string out;
  auto add = [&](const std::string& c) {
    if (!c.empty() && out.find(c) == std::string::npos)
      out += (out.empty() ? "" : " && ") + c;
  };
  for (const Guard& g : mask) {
    for (const Expr* e : {&g.value, &g.lo, &g.hi}) {
      for (const Expr& v : variables_of(*e)) {
        if (auto id = kernel::value_of(v);
            id && program_.values[static_cast<std::size_t>(*id)].lanes > 1)
          return "?";
        if (kernel::lanes_of(v) && !coefficient_of(*e, v))
          return "?";
      }
    }
    const bool varies = depends_on_lane(g.value, program_) || depends_on_lane(g.lo, program_) ||
                        depends_on_lane(g.hi, program_);
    add(index_.condition({g}, 0));
    if (varies)
      add(index_.condition({g}, lanes - 1));
  }
  return out;
}

void CudaRenderer::load(ValueId target, const kernel::inst::Load& original, Type value_type) {
  kernel::inst::Load inst = original;
  const int lanes = value_type.lanes;
  inst.mask = without_lanes(inst.mask, lanes);
  const DType type = value_type.dtype;
  const bool varies = depends_on_lane(inst.from.index, program_);
  const bool mask_varies = std::any_of(inst.mask.begin(), inst.mask.end(), [&](const Guard& g) {
    return depends_on_lane(g.value, program_) || depends_on_lane(g.lo, program_) ||
           depends_on_lane(g.hi, program_);
  });
  auto one = [&](int l) {
    const std::string got = read(inst.from.buffer, element(inst.from.buffer, inst.from.index, l),
                                 inst.policy, !inst.mask.empty());
    const std::string held = index_.condition(inst.mask, l);
    const std::string value = type == DType::Bool ? "(" + got + " != 0)" : got;
    return held.empty() ? value
                        : fmt::format("({}) ? {} : ({})0", held, value, register_type(type));
  };
  if (!varies && !mask_varies) {
    define(target, 0, one(0));
    return;
  }
  const Access access = lanes > 1 && varies ? access_of(inst.from, lanes) : Access{Expr(0), 0};
  if (access.bytes > static_cast<int>(size_of(type)) && access.bytes >= 4 &&
      all_lanes(inst.mask, lanes) != "?")
    return load_words(target, inst, value_type, access);
  for (int l = 0; l < lanes; ++l)
    define(target, l, one(l));
}

void CudaRenderer::load_words(ValueId target, const kernel::inst::Load& inst, Type value_type,
                              const Access& access) {
  const int lanes = value_type.lanes;
  const DType type = value_type.dtype;
  const int size = static_cast<int>(size_of(type));
  const std::string words = fmt::format("q{}", names_++);
  const std::string all = all_lanes(inst.mask, lanes);
  const int count = lanes * size / 4;
  line("unsigned {}[{}]{};", words, count, all.empty() ? "" : " = {}");
  const std::string base = index_.text(access.base);
  const bool some = std::any_of(inst.mask.begin(), inst.mask.end(), [&](const Guard& g) {
    return depends_on_lane(g.value, program_) || depends_on_lane(g.lo, program_) ||
           depends_on_lane(g.hi, program_);
  });
  if (!all.empty())
    open(fmt::format("if ({})", all));
  for (int at = 0; at < lanes * size; at += access.bytes) {
    const char* vector = vector_type(access.bytes);
    const std::string place =
        fmt::format("*(const {}*)(b{} + {}{})", vector, inst.from.buffer, base,
                    at ? fmt::format(" + {}", at / size) : std::string());
    const std::string got =
        read(inst.from.buffer, "(" + place + ")", inst.policy, !inst.mask.empty());
    if (access.bytes == 4)
      line("{}[{}] = {};", words, at / 4, got);
    else
      line("eg_split({} + {}, {});", words, at / 4, got);
  }
  if (!all.empty()) {
    if (some) {
      otherwise();
      for (int l = 0; l < lanes; ++l) {
        const std::string held = index_.condition(inst.mask, l);
        const std::string got =
            read(inst.from.buffer, fmt::format("b{}[{} + {}]", inst.from.buffer, base, l),
                 inst.policy, true);
        if (size == 8) {
          line("{}", guarded(held, fmt::format("eg_put8({} + {}, {});", words, 2 * l, got)));
        } else {
          const std::string bits = bits_of(type, got);
          const int shift = l * size % 4 * 8;
          line("{}",
               guarded(held, fmt::format("{}[{}] |= {}{};", words, l * size / 4, bits,
                                         shift ? fmt::format(" << {}", shift) : std::string())));
        }
      }
    }
    close();
  }
  for (int l = 0; l < lanes; ++l)
    define(target, l,
           from_words(type, words, static_cast<std::size_t>(l) * static_cast<std::size_t>(size)));
}

void CudaRenderer::store(const Store& original) {
  Store stmt = original;
  const Type stored = program_.values[static_cast<std::size_t>(stmt.value)];
  const int lanes = stored.lanes;
  stmt.mask = without_lanes(stmt.mask, lanes);
  Lanes values;
  for (int l = 0; l < lanes; ++l)
    values.push_back(lane_of(stmt.value, l));
  const Access access = lanes > 1 ? access_of(stmt.to, lanes) : Access{Expr(0), 0};
  const DType type = stored.dtype;
  if (access.bytes > static_cast<int>(size_of(type)) && access.bytes >= 4 && size_of(type) <= 4 &&
      all_lanes(stmt.mask, lanes) != "?")
    return store_words(stmt, values, stored, access);
  for (int l = 0; l < lanes; ++l) {
    const std::string place = element(stmt.to.buffer, stmt.to.index, l);
    const std::string value = type == DType::Bool ? fmt::format("(unsigned char)({} ? 1 : 0)",
                                                                values[static_cast<std::size_t>(l)])
                                                  : values[static_cast<std::size_t>(l)];
    const bool shared =
        program_.buffers[static_cast<std::size_t>(stmt.to.buffer)].space == Space::Shared;
    const std::string put = stmt.policy == CachePolicy::Streaming && !shared
                                ? fmt::format("__stcs(&{}, {});", place, value)
                                : fmt::format("{} = {};", place, value);
    line("{}", guarded(index_.condition(stmt.mask, l), put));
  }
}

void CudaRenderer::store_words(const Store& stmt, const Lanes& values, Type stored,
                               const Access& access) {
  const int lanes = stored.lanes;
  const DType type = stored.dtype;
  const int size = static_cast<int>(size_of(type));
  const std::string all = all_lanes(stmt.mask, lanes);
  const std::string base = index_.text(access.base);
  const bool shared =
      program_.buffers[static_cast<std::size_t>(stmt.to.buffer)].space == Space::Shared;
  const bool streams = stmt.policy == CachePolicy::Streaming && !shared;
  auto word = [&](int at) { // the word at byte `at`
    std::string out;
    for (int byte = 0; byte < 4; byte += size) {
      const std::string bits = bits_of(type, values[static_cast<std::size_t>((at + byte) / size)]);
      out += fmt::format("{}{}{}", byte ? " | " : "", bits,
                         byte ? fmt::format(" << {}", 8 * byte) : std::string());
    }
    return out;
  };
  if (!all.empty())
    open(fmt::format("if ({})", all));
  for (int at = 0; at < lanes * size; at += access.bytes) {
    const char* vector = vector_type(access.bytes);
    const std::string place = fmt::format("({}*)(b{} + {}{})", vector, stmt.to.buffer, base,
                                          at ? fmt::format(" + {}", at / size) : std::string());
    std::string value = word(at);
    for (int w = 4; w < access.bytes; w += 4)
      value += ", " + word(at + w);
    if (access.bytes > 4)
      value = fmt::format("make_{}({})", vector, value);
    line("{}", streams ? fmt::format("__stcs({}, {});", place, value)
                       : fmt::format("*{} = {};", place, value));
  }
  if (all.empty())
    return;
  const bool some = std::any_of(stmt.mask.begin(), stmt.mask.end(), [&](const Guard& g) {
    return depends_on_lane(g.value, program_) || depends_on_lane(g.lo, program_) ||
           depends_on_lane(g.hi, program_);
  });
  if (some) {
    otherwise();
    for (int l = 0; l < lanes; ++l)
      line("{}", guarded(index_.condition(stmt.mask, l),
                         fmt::format("b{}[{} + {}] = {};", stmt.to.buffer, base, l,
                                     values[static_cast<std::size_t>(l)])));
  }
  close();
}

void CudaRenderer::prefetch(const Address& at) {
  const Buffer& b = program_.buffers[static_cast<std::size_t>(at.buffer)];
  if (b.space != Space::Argument && b.space != Space::Workspace && b.space != Space::Problem)
    return;
  line("asm volatile(\"prefetch.global.L2 [%0];\" :: \"l\"(b{} + {}));", at.buffer,
       index_.text(at.index));
}

} // namespace egret::backend::cuda
