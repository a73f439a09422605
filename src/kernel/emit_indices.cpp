// Values of a stage's body that are made of indices: they stay expressions as long as they can, and
// what is proved of them is a constant.
#include "kernel/emit.h"

namespace egret::kernel {

ValueId Emitter::index_value(const Expr& e, DType dtype, int lanes) {
  if (!varies(e))
    lanes = 1;
  // Narrow vectors are cheaper, and conversions from them too.
  bool small = e.lower() >= INT32_MIN && e.upper() <= INT32_MAX;
  ValueId v =
      b_.cast(b_.index(e, dtype == DType::I64 && !small ? DType::I64 : DType::I32, lanes), dtype);
  if (small && (dtype == DType::I32 || dtype == DType::I64))
    index_of_.insert_or_assign(v, Index{e, lanes});
  return v;
}

void Emitter::note_constant(ValueId v, const Scalar& constant) {
  if (constant.dtype != DType::I32 && constant.dtype != DType::I64)
    return;
  const std::int64_t value = constant.as_int();
  if (value >= INT32_MIN && value <= INT32_MAX)
    index_of_.insert_or_assign(v, Index{Expr(value), 1});
}

/// Integers that are expressions of indices stay such: an expression is simplified once, and a
/// comparison of what fits into 32 bits is one instruction.
std::optional<Value> Emitter::apply_to_indices(const BodyValue& v, const std::vector<Value>& args) {
  if (args.size() != 2 || (v.op != Op::Add && v.op != Op::Lt))
    return std::nullopt;
  const auto a = index_of_.find(args[0].id), b = index_of_.find(args[1].id);
  if (a == index_of_.end() || b == index_of_.end())
    return std::nullopt;
  const int lanes = std::max(a->second.lanes, b->second.lanes);
  const Expr left = a->second.value, right = b->second.value;
  if (v.op == Op::Lt && (proves_less(left, right) || proves_less_equal(right, left)))
    return Value{b_.constant(Scalar::of(DType::Bool, std::int64_t(proves_less(left, right)))),
                 v.dtype};
  if (v.op == Op::Lt)
    return Value{
        b_.apply(Op::Lt, DType::Bool,
                 {index_value(left, DType::I32, lanes), index_value(right, DType::I32, lanes)}),
        v.dtype};
  const Expr sum = left + right;
  if (sum.lower() < INT32_MIN || sum.upper() > INT32_MAX)
    return std::nullopt;
  return Value{index_value(sum, v.dtype, lanes), v.dtype};
}

/// Conditions on indices whose ends are proved are constants, and what is made of them is.
std::optional<Value> Emitter::fold_logic(const BodyValue& v, const std::vector<ValueId>& args) {
  if (v.dtype != DType::Bool || (v.op != Op::And && v.op != Op::Or && v.op != Op::Xor))
    return std::nullopt;
  bool truths[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const auto* constant = made<inst::Constant>(without_splats(args[i]));
    if (constant == nullptr)
      return std::nullopt;
    truths[i] = constant->value.as_int() != 0;
  }
  const bool holds = v.op == Op::And  ? truths[0] && truths[1]
                     : v.op == Op::Or ? truths[0] || truths[1]
                                      : truths[0] != truths[1];
  return Value{b_.constant(Scalar::of(DType::Bool, std::int64_t(holds))), v.dtype};
}

} // namespace egret::kernel
