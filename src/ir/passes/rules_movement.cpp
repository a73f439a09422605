// Identities of movements: two of a kind become one, and what moves nothing vanishes.
#include "ir/passes/rules.h"

#include <algorithm>

namespace egret::passes {
namespace {

NodeId source_of(const Site& s) {
  return s.operand(0).inputs[0];
}
bool of_its_kind(const Site& s) {
  return s.operand_is(0, s.op);
}

std::vector<Expr> sums(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  std::vector<Expr> result;
  for (std::size_t i = 0; i < a.size(); ++i)
    result.push_back(a[i] + b[i]);
  return result;
}

std::vector<Expr> differences(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  std::vector<Expr> result;
  for (std::size_t i = 0; i < a.size(); ++i)
    result.push_back(a[i] - b[i]);
  return result;
}

bool all_zero(const std::vector<Expr>& list) {
  return std::ranges::all_of(list, [](const Expr& e) { return e == Expr(0); });
}

NodeId unmoved(const Site& s) {
  return s.operand(0).shape == s.shape ? s.in[0] : kNo;
}

NodeId permute_of_permute(const Site& s) {
  if (!of_its_kind(s))
    return kNo;
  std::vector<std::int64_t> axes;
  for (std::int64_t axis : s.attrs.axes)
    axes.push_back(s.operand(0).attrs.axes[static_cast<std::size_t>(axis)]);
  return s.out.permute(source_of(s), axes);
}

NodeId pad_of_pad(const Site& s) {
  if (!of_its_kind(s))
    return kNo;
  const ir::Attrs inner = s.operand(0).attrs;
  if (!(inner.value == s.attrs.value))
    return kNo;
  return s.out.pad(source_of(s), sums(inner.before, s.attrs.before),
                   sums(inner.after, s.attrs.after), inner.value);
}

NodeId shrink_of_shrink(const Site& s) {
  if (!of_its_kind(s))
    return kNo;
  const ir::Attrs inner = s.operand(0).attrs;
  return s.out.shrink(source_of(s), sums(inner.before, s.attrs.before),
                      sums(inner.before, s.attrs.shape));
}

/// A shrink that takes nothing of the padding.
NodeId shrink_of_pad(const Site& s) {
  if (!s.operand_is(0, Op::Pad))
    return kNo;
  const std::vector<Expr> before = s.operand(0).attrs.before;
  NodeId source = source_of(s);
  const Shape inside = s.out[source].shape;
  for (std::size_t i = 0; i < inside.size(); ++i)
    if (!proves_less_equal(before[i], s.attrs.before[i]) ||
        !proves_less_equal(s.attrs.shape[i], before[i] + inside[i]))
      return kNo;
  return s.out.shrink(source, differences(s.attrs.before, before),
                      differences(s.attrs.shape, before));
}

NodeId shrink_of_expand(const Site& s) {
  if (!s.operand_is(0, Op::Expand))
    return kNo;
  NodeId source = source_of(s);
  const Shape from = s.out[source].shape, to = s.operand(0).shape;
  std::vector<Expr> begin = s.attrs.before, end = s.attrs.shape;
  for (std::size_t i = 0; i < from.size(); ++i)
    if (!(from[i] == to[i])) {
      begin[i] = Expr(0);
      end[i] = Expr(1);
    }
  return s.out.expand(s.out.shrink(source, begin, end), s.shape);
}

/// Axes along which an order cannot be seen leave: those of size 1, and those that an expand made.
NodeId flip_of_little(const Site& s) {
  const ir::Node& operand = s.operand(0);
  std::vector<std::int64_t> axes;
  for (std::int64_t axis : s.attrs.axes) {
    auto i = static_cast<std::size_t>(axis);
    bool expanded =
        operand.op == Op::Expand && !(s.out[operand.inputs[0]].shape[i] == operand.shape[i]);
    if (!(operand.shape[i] == Expr(1)) && !expanded)
      axes.push_back(axis);
  }
  return axes.size() == s.attrs.axes.size() ? kNo : s.out.flip(s.in[0], axes);
}

NodeId flip_of_flip(const Site& s) {
  if (!of_its_kind(s))
    return kNo;
  std::vector<std::int64_t> axes;
  std::ranges::set_symmetric_difference(s.attrs.axes, s.operand(0).attrs.axes,
                                        std::back_inserter(axes));
  return s.out.flip(source_of(s), axes);
}

constexpr Rule kMovementRules[] = {
    {Op::Reshape, "a reshape to the same shape vanishes", unmoved},
    {Op::Expand, "an expand to the same shape vanishes", unmoved},
    {Op::Permute, "a permute in order vanishes",
     [](const Site& s) { return ir::is_ascending_from_zero(s.attrs.axes) ? s.in[0] : kNo; }},
    {Op::Pad, "a pad by nothing vanishes",
     [](const Site& s) {
       return all_zero(s.attrs.before) && all_zero(s.attrs.after) ? s.in[0] : kNo;
     }},
    {Op::Shrink, "a shrink to everything vanishes",
     [](const Site& s) {
       return all_zero(s.attrs.before) && s.operand(0).shape == s.shape ? s.in[0] : kNo;
     }},
    {Op::Flip, "a flip along a dim of size 1 or an expanded one vanishes", flip_of_little},
    {Op::Reshape, "reshape of reshape = one reshape",
     [](const Site& s) { return of_its_kind(s) ? s.out.reshape(source_of(s), s.shape) : kNo; }},
    {Op::Permute, "permute of permute = one permute", permute_of_permute},
    {Op::Expand, "expand of expand = one expand",
     [](const Site& s) { return of_its_kind(s) ? s.out.expand(source_of(s), s.shape) : kNo; }},
    {Op::Pad, "pad of pad with the same fill = one pad", pad_of_pad},
    {Op::Shrink, "shrink of shrink = one shrink", shrink_of_shrink},
    {Op::Flip, "flip of flip = one flip", flip_of_flip},
    {Op::Shrink, "shrink inside a pad = shrink of what was padded", shrink_of_pad},
    {Op::Shrink, "shrink of expand = expand of shrink", shrink_of_expand},
};

} // namespace

std::span<const Rule> movement_rules() {
  return kMovementRules;
}

} // namespace egret::passes
