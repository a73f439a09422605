// Instructions: each lane of a value becomes a C constant, or the name of one that is there.
#include "backend/cuda/renderer.h"

#include <numeric>

namespace egret::backend::cuda {

using kernel::Inst;
using kernel::Intrinsic;
using kernel::Type;
using kernel::ValueId;

void CudaRenderer::let(ValueId target, const Inst& inst) {
  using namespace kernel::inst;
  const Type type = inst.type;
  Lanes& made = values_[static_cast<std::size_t>(target)];
  made_by_[static_cast<std::size_t>(target)] = &inst;
  const auto each_lane = [&](const auto& text) {
    for (int l = 0; l < type.lanes; ++l)
      define(target, l, text(l));
  };
  std::visit(overloaded{[&](const Constant& x) { made.assign(1, language_.constant(x.value)); },
                        [&](const Argument& x) {
                          define(target, 0,
                                 type.dtype == DType::Bool
                                     ? fmt::format("args.s[{}] != 0", scalar_number(x))
                                     : fmt::format("eg_scalar<{}>(args.s[{}])",
                                                   register_type(type.dtype), scalar_number(x)));
                        },
                        [&](const Index& x) {
                          each_lane([&](int l) {
                            return type.dtype == DType::I64 || type.dtype == DType::I32
                                       ? fmt::format("({}){}", register_type(type.dtype),
                                                     index_.text(x.expr, l))
                                       : language_.cast(index_.wide_text(x.expr, l), DType::I64,
                                                        type.dtype);
                          });
                        },
                        [&](const Apply& x) { apply(target, x, type); },
                        [&](const Fma& x) {
                          const char* name = type.dtype == DType::F64 ? "fma" : "fmaf";
                          ensure(type.dtype == DType::F32 || type.dtype == DType::F64,
                                 "cuda renderer: fma of {}", name_of(type.dtype));
                          each_lane([&](int l) {
                            return fmt::format("{}({}, {}, {})", name, lane_of(x.args[0], l),
                                               lane_of(x.args[1], l), lane_of(x.args[2], l));
                          });
                        },
                        [&](const Load& x) { load(target, x, type); },
                        [&](const Read& x) {
                          each_lane([&](int l) { return fmt::format("r{}_{}", x.variable, l); });
                        },
                        [&](const Splat& x) { made.assign(1, lane_of(x.value, 0)); },
                        [&](const Extract& x) { made.assign(1, lane_of(x.value, x.lane)); },
                        [&](const ReduceLanes& x) { reduce_lanes(target, x); },
                        [&](const Shuffle& x) {
                          const int first =
                              program_.values[static_cast<std::size_t>(x.args.at(0))].lanes;
                          for (int from : x.lanes_from)
                            made.push_back(from < first ? lane_of(x.args[0], from)
                                                        : lane_of(x.args.at(1), from - first));
                        },
                        [&](const Test& x) {
                          each_lane([&](int l) {
                            std::string held = index_.condition(x.mask, l);
                            return held.empty() ? std::string("true") : held;
                          });
                        },
                        [&](const Intrinsic& x) { intrinsic(x, target); }},
             inst.op);
}

// Two roundings of f32 to a 16-bit type are one instruction.
bool CudaRenderer::pairwise_cast(ValueId target, const kernel::inst::Apply& inst, Type type) {
  const DType from = inst.op == Op::Cast ? dtype_of(inst.args[0]) : DType::Bool;
  if (inst.op != Op::Cast || type.lanes < 2 || (is_float(from) && from != DType::F32) ||
      (type.dtype != DType::BF16 && type.dtype != DType::F16) || value(inst.args[0]).size() == 1)
    return false;
  for (int l = 0; l < type.lanes; l += 2) {
    const std::string pair = fmt::format("w{}", names_++);
    line("const unsigned {} = {};", pair, rounded_pair(inst.args[0], type.dtype, l));
    define(target, l, fmt::format("(unsigned short){}", pair));
    define(target, l + 1, fmt::format("(unsigned short)({} >> 16)", pair));
  }
  return true;
}

// A product or sum of two 16-bit values is rounded once by an instruction of pairs, and so it is by
// way of f32, which has more than twice their digits. (Of bf16 so small that f32 has no digits left
// for them, only the pair's is.) The f32 is left to the compiler, which drops what nobody reads.
std::string CudaRenderer::rounded_pair(ValueId value, DType to, int at) const {
  const bool bf16 = to == DType::BF16;
  const auto* op = made<kernel::inst::Apply>(value);
  if (op && dtype_of(value) == DType::F32 && (op->op == Op::Mul || op->op == Op::Add)) {
    const std::string a = widened_pair(op->args[0], to, at), b = widened_pair(op->args[1], to, at);
    if (!a.empty() && !b.empty())
      return op->op == Op::Mul ? fmt::format("eg_fma_{}x2({}, {}, 0x80008000u)", name_of(to), a, b)
                               : fmt::format("eg_fma_{}x2({}, {}, {})", name_of(to), a,
                                             bf16 ? "0x3f803f80u" : "0x3c003c00u", b);
  }
  const auto lane = [&](int l) {
    return language_.f32_to_round(lane_of(value, l), dtype_of(value));
  };
  return fmt::format("{}({}, {})", bf16 ? "eg_bf16x2" : "eg_f16x2", lane(at), lane(at + 1));
}

std::string CudaRenderer::widened_pair(ValueId value, DType from, int at) const {
  while (const auto* splat = made<kernel::inst::Splat>(value))
    value = splat->value;
  if (const auto* constant = made<kernel::inst::Constant>(value)) {
    const double number = constant->value.as_double();
    const Scalar rounded = Scalar::of(from, number);
    if (rounded.as_double() != number)
      return "";
    return fmt::format("{:#x}u", (rounded.bits & 0xffff) * 0x10001);
  }
  const auto* cast = made<kernel::inst::Apply>(value);
  if (!cast || cast->op != Op::Cast || dtype_of(cast->args[0]) != from)
    return "";
  return fmt::format("eg_pair({}, {})", lane_of(cast->args[0], at), lane_of(cast->args[0], at + 1));
}

void CudaRenderer::apply(ValueId target, const kernel::inst::Apply& inst, Type type) {
  if (pairwise_cast(target, inst, type))
    return;
  bool same = true; // in all lanes
  for (ValueId a : inst.args)
    same = same && value(a).size() == 1;
  for (int l = 0; l < (same ? 1 : type.lanes); ++l) {
    std::vector<std::string> args;
    for (ValueId a : inst.args)
      args.push_back(lane_of(a, l));
    std::string text;
    if (inst.approximate)
      text = fmt::format("{}({})",
                         inst.op == Op::Exp     ? "eg_quick_exp"
                         : inst.op == Op::Recip ? "eg_quick_recip"
                                                : "eg_quick_exp2",
                         args[0]);
    else if (asked_[static_cast<std::size_t>(target)] == kernel::Asked::Narrow)
      text = narrow_text(inst.op, args);
    else if (inst.op == Op::Div && type.dtype == DType::F32 && multiplies_)
      text = fmt::format("eg_quick_div({}, {})", args[0], args[1]);
    else if (inst.op == Op::Recip && type.dtype == DType::F32 && multiplies_)
      text = fmt::format("eg_quick_div(1.0f, {})", args[0]);
    else if (inst.op == Op::Sqrt && type.dtype == DType::F32 && multiplies_)
      text = fmt::format("eg_quick_sqrt({})", args[0]);
    define(target, l,
           text.empty() ? language_.op(inst.op, type.dtype, dtype_of(inst.args.back()), args)
                        : text);
  }
}

// Lane i with lane i + lanes/2, and so on.
void CudaRenderer::reduce_lanes(ValueId target, const kernel::inst::ReduceLanes& inst) {
  const int lanes = program_.values[static_cast<std::size_t>(inst.value)].lanes;
  std::vector<std::string> parts;
  for (int l = 0; l < lanes; ++l)
    parts.push_back(lane_of(inst.value, l));
  for (std::size_t half = parts.size() / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) {
      std::string name = fmt::format("w{}", names_++);
      line("const {} {} = {};", register_type(dtype_of(inst.value)), name,
           language_.combine(inst.monoid, dtype_of(inst.value), parts[i], parts[i + half]));
      parts[i] = std::move(name);
    }
  values_[static_cast<std::size_t>(target)] = {parts[0]};
}

void CudaRenderer::reduce_threads(ValueId target, const Intrinsic& use) {
  const DType dtype = dtype_of(target);
  const char* type = register_type(dtype);
  const Monoid monoid = use.monoid();
  const bool over_block = use.number("threads") > 32;
  const int width = over_block ? 32 : static_cast<int>(use.number("threads"));
  const int lanes = program_.values[static_cast<std::size_t>(target)].lanes;
  std::vector<std::string> parts;
  // Into a name first: an operation may mention its operand twice, and every thread has to shuffle
  // once.
  auto butterfly = [&](int from) {
    const char* mask = over_block || width == 32 ? "0xffffffffu" : "eg_group";
    for (int distance = from; distance > 0; distance /= 2)
      for (std::string& p : parts) {
        const std::string other = fmt::format("w{}", names_++);
        line("const {} {} = eg_shuffle_xor({}, {}, {});", type, other, p, distance, mask);
        line("{} = {};", p, language_.combine(monoid, dtype, p, other));
      }
  };
  for (int l = 0; l < lanes; ++l) {
    parts.push_back(fmt::format("w{}", names_++));
    line("{} {} = {};", type, parts.back(), lane_of(use.values[0], l));
  }
  if (over_block || width == 32) {
    butterfly(width / 2);
  } else {
    // Other groups of the warp may be elsewhere.
    open("");
    line("const unsigned eg_group = {}u << (t & {});", (1u << width) - 1u, 32 - width);
    butterfly(width / 2);
    close();
  }
  const int warps = program_.launch.threads / 32;
  if (over_block) {
    // The halves of the scratch take turns, so that one barrier is enough.
    const SharedLayout shared = shared_layout(program_);
    int padded = 1;
    while (padded < warps)
      padded *= 2;
    const std::string at = fmt::format("(({}*)(eg_shared + {} + eg_turn * {}))", type,
                                       shared.scratch, shared.scratch_half);
    for (int l = 0; l < lanes; ++l)
      line("if ((t & 31) == 0) {}[{} + t / 32] = {};", at, 32 * l,
           parts[static_cast<std::size_t>(l)]);
    line("__syncthreads();");
    for (int l = 0; l < lanes; ++l) {
      const std::string mine = fmt::format("{}[{} + (t & {})]", at, 32 * l, padded - 1);
      line("{} = {};", parts[static_cast<std::size_t>(l)],
           padded == warps ? mine
                           : fmt::format("(t & {}) < {} ? {} : {}", padded - 1, warps, mine,
                                         language_.constant(identity_of(monoid, dtype))));
    }
    line("eg_turn ^= 1;");
    butterfly(padded / 2);
  }
  values_[static_cast<std::size_t>(target)] = parts;
}

void CudaRenderer::shuffle_xor(ValueId target, const Intrinsic& use) {
  const char* type = register_type(dtype_of(target));
  std::vector<std::string> parts;
  for (int l = 0; l < program_.values[static_cast<std::size_t>(target)].lanes; ++l) {
    parts.push_back(fmt::format("w{}", names_++));
    line("const {} {} = eg_shuffle_xor({}, {}, 0xffffffffu);", type, parts.back(),
         lane_of(use.values[0], l), lane_of(use.values[1], 0));
  }
  values_[static_cast<std::size_t>(target)] = parts;
}

// What a thread has with what thread i - 1, i - 2, i - 4 ... has; at last all move up by one.
void CudaRenderer::scan_threads(ValueId target, const Intrinsic& use) {
  const DType dtype = dtype_of(target);
  const char* type = register_type(dtype);
  const Monoid monoid = use.monoid();
  const int width = static_cast<int>(use.number("threads"));
  std::vector<std::string> parts;
  for (int l = 0; l < program_.values[static_cast<std::size_t>(target)].lanes; ++l) {
    parts.push_back(fmt::format("w{}", names_++));
    line("{} {} = {};", type, parts.back(), lane_of(use.values[0], l));
  }
  open("");
  line("const int eg_place = t & {};", width - 1);
  // Other groups of the warp may be elsewhere.
  if (width == 32)
    line("const unsigned eg_group = 0xffffffffu;");
  else
    line("const unsigned eg_group = {}u << (t & {});", (1u << width) - 1u, 32 - width);
  for (int distance = 1; distance < width; distance *= 2)
    for (const std::string& p : parts) {
      const std::string other = fmt::format("w{}", names_++);
      line("const {} {} = eg_shuffle_up({}, {}, eg_group);", type, other, p, distance);
      line("{0} = eg_place < {1} ? {0} : {2};", p, distance,
           language_.combine(monoid, dtype, other, p));
    }
  for (const std::string& p : parts) {
    line("{0} = eg_shuffle_up({0}, 1, eg_group);", p);
    line("{0} = eg_place < 1 ? {1} : {0};", p, language_.constant(identity_of(monoid, dtype)));
  }
  close();
  values_[static_cast<std::size_t>(target)] = parts;
}

} // namespace egret::backend::cuda
