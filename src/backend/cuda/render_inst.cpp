// Instructions: each lane of a value becomes a C constant, or the name of one that is there.
#include "backend/cuda/renderer.h"

#include <numeric>

namespace egret::backend::cuda {

using kernel::Inst;
using kernel::InstKind;
using kernel::ValueId;

void CudaRenderer::let(ValueId target, const Inst& inst) {
  const int lanes = inst.type.lanes;
  Lanes& made = values_[static_cast<std::size_t>(target)];
  made_by_[static_cast<std::size_t>(target)] = &inst;
  switch (inst.kind) {
  case InstKind::Constant:
    made.assign(1, constant_text(inst.constant));
    return;
  case InstKind::Scalar:
    return define(target, 0,
                  inst.type.dtype == DType::Bool
                      ? fmt::format("args.s[{}] != 0", inst.number)
                      : fmt::format("eg_scalar<{}>(args.s[{}])", register_type(inst.type.dtype),
                                    inst.number));
  case InstKind::Index:
    for (int l = 0; l < lanes; ++l) {
      const bool wide = inst.type.dtype == DType::I64;
      define(target, l,
             wide || inst.type.dtype == DType::I32
                 ? fmt::format("({}){}", register_type(inst.type.dtype), index_.text(inst.expr, l))
                 : cast_text(index_.wide_text(inst.expr, l), DType::I64, inst.type.dtype));
    }
    return;
  case InstKind::Apply:
    return apply(target, inst);
  case InstKind::Fma: {
    const char* name = inst.type.dtype == DType::F64 ? "fma" : "fmaf";
    ensure(inst.type.dtype == DType::F32 || inst.type.dtype == DType::F64,
           "cuda renderer: fma of {}", name_of(inst.type.dtype));
    for (int l = 0; l < lanes; ++l)
      define(target, l,
             fmt::format("{}({}, {}, {})", name, lane_of(inst.args[0], l), lane_of(inst.args[1], l),
                         lane_of(inst.args[2], l)));
    return;
  }
  case InstKind::Load:
    return load(target, inst);
  case InstKind::ReadVar:
    for (int l = 0; l < lanes; ++l)
      define(target, l, fmt::format("r{}_{}", inst.number, l));
    return;
  case InstKind::Splat:
    made.assign(1, lane_of(inst.args.at(0), 0));
    return;
  case InstKind::Extract:
    made.assign(1, lane_of(inst.args.at(0), inst.number));
    return;
  case InstKind::ReduceLanes:
    return reduce_lanes(target, inst);
  case InstKind::Shuffle: {
    const int first = program_.values[static_cast<std::size_t>(inst.args.at(0))].lanes;
    for (int from : inst.lanes_from)
      made.push_back(from < first ? lane_of(inst.args[0], from)
                                  : lane_of(inst.args.at(1), from - first));
    return;
  }
  case InstKind::Test:
    for (int l = 0; l < lanes; ++l) {
      const std::string held = index_.condition(inst.mask, l);
      define(target, l, held.empty() ? "true" : held);
    }
    return;
  case InstKind::ReduceThreads:
    return reduce_threads(target, inst);
  case InstKind::ScanThreads:
    return scan_threads(target, inst);
  default:
    break;
  }
  ensure(matrix_value(target, inst), "cuda renderer: kernel {}: an unknown instruction",
         program_.name);
}

// Two roundings of f32 to a 16-bit type are one instruction.
bool CudaRenderer::pairwise_cast(ValueId target, const Inst& inst) {
  if (inst.op != Op::Cast || inst.type.lanes < 2 || dtype_of(inst.args[0]) != DType::F32 ||
      (inst.type.dtype != DType::BF16 && inst.type.dtype != DType::F16) ||
      value(inst.args[0]).size() == 1)
    return false;
  for (int l = 0; l < inst.type.lanes; l += 2) {
    const std::string pair = fmt::format("w{}", names_++);
    line("const unsigned {} = {};", pair, rounded_pair(inst.args[0], inst.type.dtype, l));
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
  const Inst* made = made_by_[static_cast<std::size_t>(value)];
  if (made && made->kind == InstKind::Apply && (made->op == Op::Mul || made->op == Op::Add)) {
    const std::string a = widened_pair(made->args[0], to, at),
                      b = widened_pair(made->args[1], to, at);
    if (!a.empty() && !b.empty())
      return made->op == Op::Mul
                 ? fmt::format("eg_fma_{}x2({}, {}, 0x80008000u)", name_of(to), a, b)
                 : fmt::format("eg_fma_{}x2({}, {}, {})", name_of(to), a,
                               bf16 ? "0x3f803f80u" : "0x3c003c00u", b);
  }
  return fmt::format("{}({}, {})", bf16 ? "eg_bf16x2" : "eg_f16x2", lane_of(value, at),
                     lane_of(value, at + 1));
}

std::string CudaRenderer::widened_pair(ValueId value, DType from, int at) const {
  const Inst* made = made_by_[static_cast<std::size_t>(value)];
  while (made && made->kind == InstKind::Splat)
    made = made_by_[static_cast<std::size_t>(value = made->args[0])];
  if (!made)
    return "";
  if (made->kind == InstKind::Constant) {
    const double number = made->constant.as_double();
    const Scalar rounded = Scalar::of(from, number);
    if (rounded.as_double() != number)
      return "";
    return fmt::format("{:#x}u", (rounded.bits & 0xffff) * 0x10001);
  }
  if (made->kind != InstKind::Apply || made->op != Op::Cast || dtype_of(made->args[0]) != from)
    return "";
  return fmt::format("eg_pair({}, {})", lane_of(made->args[0], at), lane_of(made->args[0], at + 1));
}

void CudaRenderer::apply(ValueId target, const Inst& inst) {
  if (pairwise_cast(target, inst))
    return;
  bool same = true; // in all lanes
  for (ValueId a : inst.args)
    same = same && value(a).size() == 1;
  for (int l = 0; l < (same ? 1 : inst.type.lanes); ++l) {
    std::vector<std::string> args;
    for (ValueId a : inst.args)
      args.push_back(lane_of(a, l));
    std::string text;
    if (inst.number == 1 && inst.op == Op::Exp)
      text = fmt::format("eg_quick_exp({})", args[0]);
    else if (inst.quick)
      text =
          fmt::format("{}({})", inst.op == Op::Recip ? "eg_quick_recip" : "eg_quick_exp2", args[0]);
    else if (narrow_[static_cast<std::size_t>(target)])
      text = narrow_text(inst.op, args);
    else if (inst.op == Op::Div && inst.type.dtype == DType::F32 && multiplies_)
      text = fmt::format("eg_quick_div({}, {})", args[0], args[1]);
    else if (inst.op == Op::Recip && inst.type.dtype == DType::F32 && multiplies_)
      text = fmt::format("eg_quick_div(1.0f, {})", args[0]);
    define(target, l,
           text.empty() ? op_text(inst.op, inst.type.dtype, dtype_of(inst.args.back()), args)
                        : text);
  }
}

// Lane i with lane i + lanes/2, and so on.
void CudaRenderer::reduce_lanes(ValueId target, const Inst& inst) {
  const int lanes = program_.values[static_cast<std::size_t>(inst.args.at(0))].lanes;
  std::vector<std::string> parts;
  for (int l = 0; l < lanes; ++l)
    parts.push_back(lane_of(inst.args[0], l));
  for (std::size_t half = parts.size() / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) {
      std::string name = fmt::format("w{}", names_++);
      line("const {} {} = {};", register_type(inst.type.dtype), name,
           combine_text(inst.monoid, inst.type.dtype, parts[i], parts[i + half]));
      parts[i] = std::move(name);
    }
  values_[static_cast<std::size_t>(target)] = {parts[0]};
}

void CudaRenderer::reduce_threads(ValueId target, const Inst& inst) {
  const DType dtype = inst.type.dtype;
  const char* type = register_type(dtype);
  const bool over_block = inst.number > 32;
  const int width = over_block ? 32 : inst.number;
  const int lanes = inst.type.lanes;
  std::vector<std::string> parts;
  // Into a name first: an operation may mention its operand twice, and every thread has to shuffle
  // once.
  auto butterfly = [&](int from) {
    const char* mask = over_block || width == 32 ? "0xffffffffu" : "eg_group";
    for (int distance = from; distance > 0; distance /= 2)
      for (std::string& p : parts) {
        const std::string other = fmt::format("w{}", names_++);
        line("const {} {} = eg_shuffle_xor({}, {}, {});", type, other, p, distance, mask);
        line("{} = {};", p, combine_text(inst.monoid, dtype, p, other));
      }
  };
  for (int l = 0; l < lanes; ++l) {
    parts.push_back(fmt::format("w{}", names_++));
    line("{} {} = {};", type, parts.back(), lane_of(inst.args.at(0), l));
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
                                         constant_text(identity_of(inst.monoid, dtype))));
    }
    line("eg_turn ^= 1;");
    butterfly(padded / 2);
  }
  values_[static_cast<std::size_t>(target)] = parts;
}

// What a thread has with what thread i - 1, i - 2, i - 4 ... has; at last all move up by one.
void CudaRenderer::scan_threads(ValueId target, const Inst& inst) {
  const DType dtype = inst.type.dtype;
  const char* type = register_type(dtype);
  const int width = inst.number;
  std::vector<std::string> parts;
  for (int l = 0; l < inst.type.lanes; ++l) {
    parts.push_back(fmt::format("w{}", names_++));
    line("{} {} = {};", type, parts.back(), lane_of(inst.args.at(0), l));
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
           combine_text(inst.monoid, dtype, other, p));
    }
  for (const std::string& p : parts) {
    line("{0} = eg_shuffle_up({0}, 1, eg_group);", p);
    line("{0} = eg_place < 1 ? {1} : {0};", p, constant_text(identity_of(inst.monoid, dtype)));
  }
  close();
  values_[static_cast<std::size_t>(target)] = parts;
}

} // namespace egret::backend::cuda
