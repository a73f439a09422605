#include "autodiff/value.h"

#include <algorithm>

namespace egret::autodiff {

namespace {

Value made(Value like, ir::NodeId id) {
  return {like.graph, id};
}

bool contains(const Axes& axes, std::size_t axis) {
  return std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(axis)) != axes.end();
}

bool is_one(const Expr& dim) {
  return dim == Expr(1);
}

/// What an expansion repeats; the value itself when it is none.
Value before_expansion(Value a) {
  return a.node().op == Op::Expand ? made(a, a.node().inputs[0]) : a;
}

Shape without(const Shape& shape, const Axes& axes) {
  Shape left;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (!contains(axes, i))
      left.push_back(shape[i]);
  return left;
}

/// The order of axes that puts `axes` behind the others.
Axes order_with_last(std::size_t rank, const Axes& axes) {
  Axes order;
  for (std::size_t i = 0; i < rank; ++i)
    if (!contains(axes, i))
      order.push_back(static_cast<std::int64_t>(i));
  order.insert(order.end(), axes.begin(), axes.end());
  return order;
}

Axes inverse_order(const Axes& order) {
  Axes inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  return inverse;
}

} // namespace

Value apply(Op op, std::span<const Value> operands) {
  // The box in which the operands differ: 1 where all of them are repeated.
  const Shape shape = operands[0].shape();
  Shape small(shape.size(), Expr(1));
  for (Value operand : operands) {
    const Shape own = before_expansion(operand).shape();
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (!is_one(own[i]))
        small[i] = shape[i];
  }
  std::vector<ir::NodeId> ids;
  for (Value operand : operands)
    ids.push_back(small == shape ? operand.id : expand(before_expansion(operand), small).id);
  return expand(made(operands[0], operands[0].graph->add(op, ids)), shape);
}

Value unary(Op op, Value a) {
  return apply(op, {&a, 1});
}

Value binary(Op op, Value a, Value b) {
  const Value operands[] = {a, b};
  return apply(op, operands);
}

Value operator+(Value a, Value b) {
  if (constant_of(a) == 0.0)
    return b;
  return constant_of(b) == 0.0 ? a : binary(Op::Add, a, b);
}

Value operator*(Value a, Value b) {
  if (constant_of(a) == 1.0)
    return b;
  return constant_of(b) == 1.0 ? a : binary(Op::Mul, a, b);
}

Value operator/(Value a, Value b) {
  return constant_of(b) == 1.0 ? a : binary(Op::Div, a, b);
}

Value operator-(Value a) {
  return a * -1.0;
}
Value operator-(Value a, Value b) {
  return a + (-b);
}
Value operator+(Value a, double b) {
  return a + full_like(a, b);
}
Value operator*(Value a, double b) {
  return a * full_like(a, b);
}
Value less(Value a, Value b) {
  return binary(Op::Lt, a, b);
}
Value equal(Value a, Value b) {
  return binary(Op::Eq, a, b);
}

Value select(Value condition, Value a, Value b) {
  const Value operands[] = {condition, a, b};
  return apply(Op::Select, operands);
}

Value cast(Value a, DType type) {
  if (a.dtype() == type)
    return a;
  const Value small = before_expansion(a);
  return expand(made(a, a.graph->cast(small.id, type)), a.shape());
}

Value full_like(Value like, double value) {
  return full(*like.graph, like.shape(), like.dtype(), value);
}

Value full(ir::Graph& graph, Shape shape, DType type, double value) {
  return {&graph, graph.broadcast(graph.constant(type, value), shape)};
}

Value numbers(ir::Graph& graph, Shape shape) {
  return {&graph, graph.reshape(graph.iota(element_count(shape)), shape)};
}

std::optional<double> constant_of(Value a) {
  const ir::Node* node = &a.node();
  while (node->op == Op::Expand || node->op == Op::Reshape || node->op == Op::Permute)
    node = &(*a.graph)[node->inputs[0]];
  if (node->op != Op::Constant)
    return std::nullopt;
  return node->attrs.value.as_double();
}

Value reshape(Value a, const Shape& shape) {
  return made(a, a.graph->reshape(a.id, shape));
}

Value expand(Value a, const Shape& shape) {
  const Value small = before_expansion(a);
  return made(a, a.graph->expand(small.id, shape));
}

Value permute(Value a, const Axes& axes) {
  return made(a, a.graph->permute(a.id, axes));
}
Value flip(Value a, const Axes& axes) {
  return made(a, a.graph->flip(a.id, axes));
}

Value shrink(Value a, std::vector<Expr> begin, std::vector<Expr> end) {
  return made(a, a.graph->shrink(a.id, std::move(begin), std::move(end)));
}

Value pad(Value a, std::vector<Expr> before, std::vector<Expr> after, double fill) {
  return made(a,
              a.graph->pad(a.id, std::move(before), std::move(after), Scalar::of(a.dtype(), fill)));
}

Value sum(Value a, const Axes& axes) {
  const Shape shape = a.shape();
  Value small = before_expansion(a);
  double repeats = 1;
  for (std::int64_t axis : axes) {
    const auto i = static_cast<std::size_t>(axis);
    if (small.shape()[i] == shape[i])
      continue;
    if (!shape[i].is_constant())
      small = a; // a number of repeats that is not known is left to the sum
    else
      repeats *= static_cast<double>(shape[i].value());
  }
  if (small.id == a.id || Scalar::of(a.dtype(), repeats).as_double() != repeats) {
    small = a;
    repeats = 1;
  }
  const Shape own = small.shape();
  Axes summed;
  for (std::int64_t axis : axes)
    if (!is_one(own[static_cast<std::size_t>(axis)]))
      summed.push_back(axis);
  Value total = made(a, a.graph->reduce(Op::ReduceSum, small.id, summed));
  total = reshape(total, without(own, axes));
  return expand(repeats == 1 ? total : total * repeats, without(shape, axes));
}

Value linear_scan(Value term, Value factor, std::int64_t axis) {
  return made(term, term.graph->linear_scan(term.id, factor.id, axis));
}

Value scan(Op op, Value a, std::int64_t axis) {
  return made(a, a.graph->scan(op, a.id, axis));
}

Value gather(Value data, Value index, std::int64_t axis) {
  return made(data, data.graph->gather(data.id, index.id, axis));
}

Value scatter(Op op, Value data, Value index, Value updates, std::int64_t axis) {
  return made(data, data.graph->scatter(op, data.id, index.id, updates.id, axis));
}

Value unreduce(Value a, const Shape& shape, const Axes& axes) {
  // An expansion of `a` joins the one made here.
  const Value small = before_expansion(a);
  Shape kept(shape.size(), Expr(1));
  for (std::size_t i = 0, next = 0; i < shape.size(); ++i)
    if (!contains(axes, i))
      kept[i] = small.shape()[next++];
  return expand(reshape(small, kept), shape);
}

Value with_axes_last(Value a, const Axes& axes) {
  const Shape shape = a.shape();
  Shape flat = without(shape, axes);
  Expr length = 1;
  for (std::int64_t axis : axes)
    length = length * shape[static_cast<std::size_t>(axis)];
  flat.push_back(length);
  return reshape(permute(a, order_with_last(shape.size(), axes)), flat);
}

Value with_axes_back(Value a, const Shape& shape, const Axes& axes) {
  const Axes order = order_with_last(shape.size(), axes);
  Shape permuted;
  for (std::int64_t axis : order)
    permuted.push_back(shape[static_cast<std::size_t>(axis)]);
  return permute(reshape(a, permuted), inverse_order(order));
}

} // namespace egret::autodiff
