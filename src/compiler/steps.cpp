#include "compiler/steps.h"

#include "compiler/unrolled_factors.h"
#include "ir/structure.h"
#include "support/hash.h"

#include <algorithm>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// Whether a value of steps is made of its operand's element by element of the axis in front, by
/// the same operation with one more axis.
bool lifts(const Node& node) {
  const OpClass cls = info_of(node.op).cls;
  return is_elementwise(node.op) || is_movement(node.op) ||
         (cls == OpClass::Reduce && node.op != Op::ReduceArgMax);
}

std::vector<std::int64_t> behind_front(std::span<const std::int64_t> axes) {
  std::vector<std::int64_t> moved;
  for (const std::int64_t a : axes)
    moved.push_back(a + 1);
  return moved;
}

std::vector<Expr> with_front(const Expr& first, std::span<const Expr> rest) {
  std::vector<Expr> all{first};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

} // namespace

Step Steps::of(NodeId id) {
  while (steps_.size() < graph_.size())
    steps_.push_back(step_of(static_cast<NodeId>(steps_.size())));
  return steps_[id];
}

Step Steps::slice(NodeId id) const {
  const UnrolledFactor factor = unrolled_factor(graph_, id);
  if (factor.root != id || !factor.is_slice)
    return {};
  const std::uint64_t form = combine(mix(factor.whole + 1), std::uint64_t(factor.axis));
  return {form | 1, factor.index};
}

Step Steps::step_of(NodeId id) const {
  const Node& node = graph_[id];
  if (!lifts(node))
    return {};
  const auto first = std::ranges::find_if(node.inputs, [&](NodeId in) { return bool(steps_[in]); });
  if (first == node.inputs.end())
    return node.op == Op::Shrink ? slice(id) : Step{};
  const std::int64_t number = steps_[*first].number;
  std::uint64_t form = ir::hash_attrs(node.op, node.attrs);
  for (const NodeId in : node.inputs) {
    const Step step = steps_[in];
    form = combine(form, step ? std::uint64_t(step.number - number) : ~std::uint64_t{0});
    form = combine(form, step ? step.form : std::uint64_t(in));
  }
  return {form | 1, number};
}

NodeId StepLifter::repeated(NodeId id, std::int64_t count) {
  const Shape shape = out_[id].shape;
  return out_.expand(out_.reshape(id, with_front(Expr(1), shape)), with_front(Expr(count), shape));
}

NodeId StepLifter::slices(NodeId id, std::int64_t count, std::int64_t direction) {
  const UnrolledFactor first = unrolled_factor(out_, id);
  const Node slice = out_[id];
  const auto axis = static_cast<std::size_t>(first.axis);
  std::vector<Expr> begin = slice.attrs.before, end = slice.attrs.shape;
  if (direction < 0)
    begin[axis] = begin[axis] - Expr(count - 1);
  end[axis] = begin[axis] + Expr(count);
  std::vector<std::int64_t> order{first.axis};
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(begin.size()); ++d)
    if (d != first.axis)
      order.push_back(d);
  const NodeId all = out_.reshape(out_.permute(out_.shrink(first.whole, begin, end), order),
                                  with_front(Expr(count), slice.shape));
  return direction < 0 ? out_.flip(all, {0}) : all;
}

NodeId StepLifter::lifted(NodeId id, std::int64_t count, std::int64_t direction) {
  const std::pair key{id, count * direction};
  if (const auto it = known_.find(key); it != known_.end())
    return it->second;
  const Node node = out_[id];
  std::vector<NodeId> operands;
  const bool made =
      std::ranges::any_of(node.inputs, [&](NodeId in) { return bool(steps_.of(in)); });
  if (!made)
    return known_[key] = slices(id, count, direction);
  for (const NodeId in : node.inputs)
    operands.push_back(steps_.of(in) ? lifted(in, count, direction) : repeated(in, count));
  ir::Attrs attrs = node.attrs;
  const Expr zero(0), n(count);
  switch (node.op) {
  case Op::Reshape:
  case Op::Expand:
    attrs.shape = with_front(n, attrs.shape);
    break;
  case Op::Pad:
    attrs.before = with_front(zero, attrs.before);
    attrs.after = with_front(zero, attrs.after);
    break;
  case Op::Shrink:
    attrs.before = with_front(zero, attrs.before);
    attrs.shape = with_front(n, attrs.shape);
    break;
  case Op::Permute:
    attrs.axes = behind_front(attrs.axes);
    attrs.axes.insert(attrs.axes.begin(), 0);
    break;
  default:
    attrs.axes = behind_front(attrs.axes); // of Flip and reductions
  }
  return known_[key] = out_.add(node.op, operands, std::move(attrs));
}

} // namespace egret::compiler
