// Identities of reductions, scans and gathers. Sums of floats are left as they are: their rounding
// depends on the order, and a sum of one -0 is 0.
#include "ir/passes/rules.h"

namespace egret::passes {
namespace {

bool is_exact(const Site& s) {
  return !is_float(s.dtype) || monoid_of(s.op) == Monoid::Max;
}
/// One element combined with nothing is itself.
bool keeps_one(const Site& s) {
  return is_exact(s) || monoid_of(s.op) == Monoid::Prod;
}

NodeId without_unit_axes(const Site& s) {
  if (!keeps_one(s))
    return kNo;
  const Shape& from = s.operand(0).shape;
  std::vector<std::int64_t> axes;
  Shape squeezed;
  std::int64_t place = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    bool reduced = next < s.attrs.axes.size() && s.attrs.axes[next] == static_cast<std::int64_t>(i);
    next += reduced;
    if (reduced && from[i] == Expr(1))
      continue;
    if (reduced)
      axes.push_back(place);
    squeezed.push_back(from[i]);
    ++place;
  }
  if (squeezed.size() == from.size())
    return kNo;
  return s.out.reduce(s.op, s.out.reshape(s.in[0], squeezed), axes);
}

NodeId reduction_of_reduction(const Site& s) {
  if (!is_exact(s) || !s.operand_is(0, s.op))
    return kNo;
  NodeId source = s.operand(0).inputs[0];
  std::vector<std::int64_t> axes = s.operand(0).attrs.axes;
  std::vector<bool> gone(s.out[source].shape.size());
  for (std::int64_t axis : axes)
    gone[static_cast<std::size_t>(axis)] = true;
  std::vector<std::int64_t> left; // places of the inner result's dims in the source
  for (std::size_t i = 0; i < gone.size(); ++i)
    if (!gone[i])
      left.push_back(static_cast<std::int64_t>(i));
  for (std::int64_t axis : s.attrs.axes)
    axes.push_back(left[static_cast<std::size_t>(axis)]);
  return s.out.reduce(s.op, source, axes);
}

NodeId scan_of_one(const Site& s) {
  return keeps_one(s) && s.shape[static_cast<std::size_t>(s.attrs.axes[0])] == Expr(1) ? s.in[0]
                                                                                       : kNo;
}

NodeId gather_in_order(const Site& s) {
  auto axis = static_cast<std::size_t>(s.attrs.axes[0]);
  const ir::Node& index = s.operand(1);
  return index.op == Op::Iota && index.dtype == DType::I64 &&
                 index.shape[0] == s.operand(0).shape[axis]
             ? s.in[0]
             : kNo;
}

constexpr Rule kReduceRules[] = {
    {Op::ReduceSum, "sum over dims of size 1 = reshape (integers)", without_unit_axes},
    {Op::ReduceMax, "amax over dims of size 1 = reshape", without_unit_axes},
    {Op::ReduceProd, "prod over dims of size 1 = reshape", without_unit_axes},
    {Op::ReduceArgMax, "argmax over a dim of size 1 = 0",
     [](const Site& s) {
       auto axis = static_cast<std::size_t>(s.attrs.axes[0]);
       return s.operand(0).shape[axis] == Expr(1) ? s.filled(0) : kNo;
     }},
    {Op::ReduceSum, "sum of sum = one sum (integers)", reduction_of_reduction},
    {Op::ReduceMax, "amax of amax = one amax", reduction_of_reduction},
    {Op::ReduceProd, "prod of prod = one prod (integers)", reduction_of_reduction},
    {Op::ScanSum, "cumsum along a dim of size 1 vanishes (integers)", scan_of_one},
    {Op::ScanMax, "cummax along a dim of size 1 vanishes", scan_of_one},
    {Op::ScanProd, "cumprod along a dim of size 1 vanishes", scan_of_one},
    {Op::Gather, "gather(x, iota) = x", gather_in_order},
};

} // namespace

std::span<const Rule> reduction_rules() {
  return kReduceRules;
}

} // namespace egret::passes
