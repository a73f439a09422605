// Identities of conversions and markers.
#include "ir/passes/rules.h"
#include "ir/structure.h"

namespace egret::passes {
namespace {

NodeId cast_of_cast(const Site& s) {
  if (!s.operand_is(0, Op::Cast))
    return kNo;
  NodeId source = s.operand(0).inputs[0];
  if (!ir::cast_passes_through(s.out[source].dtype, s.operand(0).dtype, s.dtype))
    return kNo;
  return s.out.cast(source, s.dtype);
}

NodeId bitcast_of_bitcast(const Site& s) {
  if (!s.operand_is(0, Op::Bitcast) || s.operand(0).dtype == DType::Bool)
    return kNo;
  return s.out.bitcast(s.operand(0).inputs[0], s.dtype);
}

constexpr Rule kConvertRules[] = {
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
  return kConvertRules;
}

} // namespace egret::passes
