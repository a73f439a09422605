// The graph: hash-consing and the builder methods.
#include "egret/ir.h"

#include "ir/shape_rules.h"
#include "ir/structure.h"
#include "support/fail.h"
#include "support/hash.h"

#include <algorithm>

namespace egret::ir {
namespace {

std::uint64_t hash_of(Op op, std::span<const NodeId> inputs, const Attrs& attrs) {
  std::uint64_t h = hash_attrs(op, attrs);
  for (NodeId id : inputs)
    h = combine(h, id);
  return h;
}

bool is_zero(const Expr& e) {
  return e == Expr(0);
}

} // namespace

std::uint64_t hash_attrs(Op op, const Attrs& attrs) {
  std::uint64_t h = mix(static_cast<std::uint64_t>(op) + 1);
  h = combine(h, static_cast<std::uint64_t>(attrs.dtype));
  h = combine(h, combine(static_cast<std::uint64_t>(attrs.value.dtype), attrs.value.bits));
  for (const auto* list : {&attrs.shape, &attrs.before, &attrs.after}) {
    h = combine(h, list->size());
    for (const Expr& e : *list)
      h = combine(h, e.hash());
  }
  h = combine(h, attrs.axes.size());
  for (std::int64_t axis : attrs.axes)
    h = combine(h, static_cast<std::uint64_t>(axis));
  h = combine(h, static_cast<std::uint64_t>(attrs.slot));
  return combine(h, attrs.by_value);
}

const Node& Graph::operand(Op op, NodeId id) const {
  if (id >= nodes_.size())
    fail(ErrorKind::Value, "{}: operand %{} does not exist; the graph has {} nodes",
         info_of(op).name, id, nodes_.size());
  return nodes_[id];
}

NodeId Graph::add(Op op, std::span<const NodeId> inputs, Attrs attrs) {
  const OpInfo& row = info_of(op);
  if (inputs.size() != static_cast<std::size_t>(row.arity))
    fail(ErrorKind::Value, "{}: takes {} operand{}, got {}", row.name, row.arity,
         row.arity == 1 ? "" : "s", inputs.size());
  const Node* operands[3] = {};
  for (std::size_t i = 0; i < inputs.size(); ++i)
    operands[i] = &operand(op, inputs[i]);
  auto free_slot = static_cast<std::int64_t>(inputs_.size());
  if (op == Op::Input && attrs.slot == -1)
    attrs.slot = free_slot;

  std::uint64_t hash = hash_of(op, inputs, attrs);
  auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Node& node = nodes_[it->second];
    if (node.op == op && std::ranges::equal(node.inputs, inputs) && node.attrs == attrs)
      return it->second;
  }
  if (op == Op::Input && attrs.slot != free_slot)
    fail(ErrorKind::Value, "input: `{}` asks for slot {}; {}", attrs.name, attrs.slot,
         attrs.slot >= 0 && attrs.slot < free_slot ? "another input has it"
                                                   : fmt::format("the next one is {}", free_slot));

  Inferred inferred = infer(op, {operands, inputs.size()}, attrs);
  if (nodes_.size() >= kNoNode)
    fail(ErrorKind::Memory, "graph: more than {} nodes", kNoNode);
  auto id = static_cast<NodeId>(nodes_.size());
  nodes_.push_back({op,
                    inferred.dtype,
                    std::move(inferred.shape),
                    {inputs.begin(), inputs.end()},
                    std::move(attrs)});
  index_.emplace(hash, id);
  if (op == Op::Input)
    inputs_.push_back(id);
  return id;
}

NodeId Graph::input(std::string name, DType dtype, Shape shape, bool by_value) {
  Attrs attrs;
  attrs.name = std::move(name);
  attrs.dtype = dtype;
  attrs.shape = std::move(shape);
  attrs.by_value = by_value;
  return add(Op::Input, {}, std::move(attrs));
}

NodeId Graph::constant(Scalar value) {
  Attrs attrs;
  attrs.value = value;
  return add(Op::Constant, {}, std::move(attrs));
}

NodeId Graph::constant(DType type, double value) {
  return constant(Scalar::of(type, value));
}

NodeId Graph::iota(Expr n, DType type) {
  Attrs attrs;
  attrs.dtype = type;
  attrs.shape = {std::move(n)};
  return add(Op::Iota, {}, std::move(attrs));
}

NodeId Graph::unary(Op op, NodeId a) {
  return add(op, {&a, 1});
}

NodeId Graph::binary(Op op, NodeId a, NodeId b) {
  NodeId in[] = {a, b};
  return add(op, in);
}

NodeId Graph::select(NodeId condition, NodeId a, NodeId b) {
  NodeId in[] = {condition, a, b};
  return add(Op::Select, in);
}

NodeId Graph::cast(NodeId a, DType type) {
  if (operand(Op::Cast, a).dtype == type)
    return a;
  Attrs attrs;
  attrs.dtype = type;
  return add(Op::Cast, {&a, 1}, std::move(attrs));
}

NodeId Graph::bitcast(NodeId a, DType type) {
  if (operand(Op::Bitcast, a).dtype == type)
    return a;
  Attrs attrs;
  attrs.dtype = type;
  return add(Op::Bitcast, {&a, 1}, std::move(attrs));
}

NodeId Graph::reduce(Op op, NodeId a, std::vector<std::int64_t> axes) {
  operand(op, a);
  if (axes.empty() && op != Op::ReduceArgMax)
    return a;
  Attrs attrs;
  attrs.axes = std::move(axes);
  std::ranges::sort(attrs.axes);
  return add(op, {&a, 1}, std::move(attrs));
}

NodeId Graph::scan(Op op, NodeId a, std::int64_t axis) {
  Attrs attrs;
  attrs.axes = {axis};
  return add(op, {&a, 1}, std::move(attrs));
}

NodeId Graph::linear_scan(NodeId term, NodeId factor, std::int64_t axis) {
  Attrs attrs;
  attrs.axes = {axis};
  const NodeId operands[] = {term, factor};
  return add(Op::ScanLinear, operands, std::move(attrs));
}

NodeId Graph::argsort(NodeId a, std::int64_t axis, const Expr& count) {
  Attrs attrs;
  attrs.axes = {axis};
  attrs.shape = (*this)[a].shape;
  if (axis >= 0 && axis < static_cast<std::int64_t>(attrs.shape.size()))
    attrs.shape[static_cast<std::size_t>(axis)] = count;
  return add(Op::ArgSort, {&a, 1}, std::move(attrs));
}

NodeId Graph::gather(NodeId data, NodeId index, std::int64_t axis) {
  Attrs attrs;
  attrs.axes = {axis};
  NodeId in[] = {data, index};
  return add(Op::Gather, in, std::move(attrs));
}

NodeId Graph::scatter(Op op, NodeId data, NodeId index, NodeId updates, std::int64_t axis) {
  Attrs attrs;
  attrs.axes = {axis};
  NodeId in[] = {data, index, updates};
  return add(op, in, std::move(attrs));
}

NodeId Graph::reshape(NodeId a, Shape shape) {
  if (operand(Op::Reshape, a).shape == shape)
    return a;
  Attrs attrs;
  attrs.shape = std::move(shape);
  return add(Op::Reshape, {&a, 1}, std::move(attrs));
}

NodeId Graph::permute(NodeId a, std::vector<std::int64_t> axes) {
  if (axes.size() == operand(Op::Permute, a).shape.size() && is_ascending_from_zero(axes))
    return a;
  Attrs attrs;
  attrs.axes = std::move(axes);
  return add(Op::Permute, {&a, 1}, std::move(attrs));
}

NodeId Graph::expand(NodeId a, Shape shape) {
  if (operand(Op::Expand, a).shape == shape)
    return a;
  Attrs attrs;
  attrs.shape = std::move(shape);
  return add(Op::Expand, {&a, 1}, std::move(attrs));
}

NodeId Graph::pad(NodeId a, std::vector<Expr> before, std::vector<Expr> after, Scalar fill) {
  std::size_t rank = operand(Op::Pad, a).shape.size();
  if (before.size() == rank && after.size() == rank && std::ranges::all_of(before, is_zero) &&
      std::ranges::all_of(after, is_zero))
    return a;
  Attrs attrs;
  attrs.before = std::move(before);
  attrs.after = std::move(after);
  attrs.value = fill;
  return add(Op::Pad, {&a, 1}, std::move(attrs));
}

NodeId Graph::shrink(NodeId a, std::vector<Expr> begin, std::vector<Expr> end) {
  const Shape& shape = operand(Op::Shrink, a).shape;
  if (begin.size() == shape.size() && end == shape && std::ranges::all_of(begin, is_zero))
    return a;
  Attrs attrs;
  attrs.before = std::move(begin);
  attrs.shape = std::move(end);
  return add(Op::Shrink, {&a, 1}, std::move(attrs));
}

NodeId Graph::flip(NodeId a, std::vector<std::int64_t> axes) {
  operand(Op::Flip, a);
  if (axes.empty())
    return a;
  Attrs attrs;
  attrs.axes = std::move(axes);
  std::ranges::sort(attrs.axes);
  return add(Op::Flip, {&a, 1}, std::move(attrs));
}

NodeId Graph::broadcast(NodeId a, Shape shape) {
  Shape from = operand(Op::Expand, a).shape;
  if (from.size() > shape.size())
    fail(ErrorKind::Shape, "broadcast: {} to {}: the rank can only grow ({} > {})", to_string(from),
         to_string(shape), from.size(), shape.size());
  Shape ones(shape.size() - from.size(), Expr(1));
  from.insert(from.begin(), ones.begin(), ones.end());
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (!(from[i] == shape[i]) && !(from[i] == Expr(1)))
      fail(ErrorKind::Shape, "broadcast: {} to {}: dim {} is {} and must be 1 or {}",
           to_string(nodes_[a].shape), to_string(shape), i, from[i].str(), shape[i].str());
  return expand(reshape(a, std::move(from)), std::move(shape));
}

bool is_ascending_from_zero(std::span<const std::int64_t> axes) {
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != static_cast<std::int64_t>(i))
      return false;
  return true;
}

} // namespace egret::ir
