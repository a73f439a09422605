// Identities of conversions and markers.
#include "ir/passes/rules.h"

namespace egret::passes {
namespace {

constexpr NodeId kNo = ir::kNoNode;

/// Bits of a significand; what integers need of it.
int digits(DType type) {
  switch (type) {
  case DType::F16:
    return 11;
  case DType::BF16:
    return 8;
  case DType::F32:
    return 24;
  case DType::F64:
    return 53;
  case DType::Bool:
    return 1;
  default:
    return static_cast<int>(8 * size_of(type)) - (is_signed(type) ? 1 : 0);
  }
}

/// Every value of `from` is a value of `to`.
bool holds(DType from, DType to) {
  if (from == to || from == DType::Bool)
    return true;
  if (to == DType::Bool)
    return false;
  if (is_float(from))
    return is_float(to) && digits(from) <= digits(to) && !(from == DType::BF16 && to == DType::F16);
  if (is_float(
          to)) // the largest f16 is below 2^16; the others reach beyond any integer they can count
    return digits(from) <= digits(to);
  return is_signed(from) ? is_signed(to) && digits(from) <= digits(to) : digits(from) <= digits(to);
}

NodeId cast_of_cast(const Site& s) {
  if (!s.operand_is(0, Op::Cast))
    return kNo;
  NodeId source = s.operand(0).inputs[0];
  DType from = s.out[source].dtype, between = s.operand(0).dtype;
  if (!holds(from, between))
    return kNo;
  // integers wrap into each other, but saturate when they come from a float
  if (is_integer(from) && is_float(between) && is_integer(s.dtype) && !holds(from, s.dtype))
    return kNo;
  return s.out.cast(source, s.dtype);
}

NodeId bitcast_of_bitcast(const Site& s) {
  if (!s.operand_is(0, Op::Bitcast) || s.operand(0).dtype == DType::Bool)
    return kNo;
  return s.out.bitcast(s.operand(0).inputs[0], s.dtype);
}

constexpr Rule kRules[] = {
    {Op::Cast, "a cast to the same dtype vanishes",
     [](const Site& s) { return s.operand(0).dtype == s.dtype ? s.in[0] : kNo; }},
    {Op::Cast, "cast(cast(x)) = cast(x) where the inner one loses nothing", cast_of_cast},
    {Op::Bitcast, "a bitcast to the same dtype vanishes",
     [](const Site& s) { return s.operand(0).dtype == s.dtype ? s.in[0] : kNo; }},
    {Op::Bitcast, "bitcast(bitcast(x)) = bitcast(x) (not through bool)", bitcast_of_bitcast},
    {Op::StopGradient, "stop_gradient(stop_gradient(x)) = stop_gradient(x)",
     [](const Site& s) { return s.operand_is(0, Op::StopGradient) ? s.in[0] : kNo; }},
};

} // namespace

std::span<const Rule> conversion_rules() {
  return kRules;
}

} // namespace egret::passes
