#include "compiler/boxes.h"

#include "support/checked.h"

#include <algorithm>
#include <array>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// Integers, both included.
struct Bounds {
  std::int64_t least = 0, most = 0;
};

/// The dims of a reshape's operand and result that are the same ones, in order; those of extent 1
/// beside them come and go. Nothing where dims are divided or joined.
std::optional<std::vector<std::pair<std::size_t, std::size_t>>> same_dims(const Shape& from,
                                                                          const Shape& to) {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  std::size_t i = 0, j = 0;
  const auto skip_units = [](const Shape& shape, std::size_t& at) {
    while (at < shape.size() && shape[at] == Expr(1))
      ++at;
  };
  for (skip_units(from, i), skip_units(to, j); i < from.size() && j < to.size();
       skip_units(from, ++i), skip_units(to, ++j)) {
    if (!(from[i] == to[j]))
      return std::nullopt;
    pairs.emplace_back(i, j);
  }
  return i == from.size() && j == to.size() ? std::optional(pairs) : std::nullopt;
}

std::optional<Bounds> bounds_of(const Graph& graph, NodeId id, const Box& box) {
  const Node& node = graph[id];
  if (!is_integer(node.dtype))
    return std::nullopt;
  switch (node.op) {
  case Op::Constant: {
    const std::int64_t value = node.attrs.value.as_int();
    return Bounds{value, value};
  }
  case Op::Iota:
    return Bounds{box[0].begin, box[0].end - 1};
  case Op::Cast:
    // Not where it would wrap.
    if (size_of(node.dtype) < size_of(graph[node.inputs[0]].dtype))
      return std::nullopt;
    return bounds_of(graph, node.inputs[0], box);
  case Op::Add:
  case Op::Mul: {
    const auto a = bounds_of(graph, node.inputs[0], box), b = bounds_of(graph, node.inputs[1], box);
    if (!a || !b || node.dtype != DType::I64)
      return std::nullopt;
    std::vector<std::int64_t> ends;
    for (const std::int64_t x : {a->least, a->most})
      for (const std::int64_t y : {b->least, b->most}) {
        std::int64_t end = 0;
        if (node.op == Op::Add ? __builtin_add_overflow(x, y, &end)
                               : __builtin_mul_overflow(x, y, &end))
          return std::nullopt;
        ends.push_back(end);
      }
    const auto [least, most] = std::minmax_element(ends.begin(), ends.end());
    return Bounds{*least, *most};
  }
  default:
    if (info_of(node.op).cls == OpClass::Movement)
      if (const auto inner = operand_box(graph, id, box))
        return bounds_of(graph, node.inputs[0], *inner);
    return std::nullopt;
  }
}

} // namespace

std::optional<Box> whole_box(const Shape& shape) {
  Box box;
  for (const Expr& extent : shape) {
    if (!extent.is_constant() || extent.value() < 1)
      return std::nullopt;
    box.push_back({0, extent.value()});
  }
  return box;
}

Shape shape_of(const Box& box) {
  Shape shape;
  for (const Range& range : box)
    shape.push_back(Expr(range.extent()));
  return shape;
}

std::optional<Box> operand_box(const Graph& graph, NodeId movement, const Box& box) {
  const Node& node = graph[movement];
  const Shape& from = graph[node.inputs[0]].shape;
  const std::optional<Box> whole = whole_box(from);
  if (!whole)
    return std::nullopt;
  Box inner = *whole;
  switch (node.op) {
  case Op::Permute:
    for (std::size_t d = 0; d < box.size(); ++d)
      inner[static_cast<std::size_t>(node.attrs.axes[d])] = box[d];
    return inner;
  case Op::Expand:
    for (std::size_t d = 0; d < box.size(); ++d)
      if (from[d] == node.shape[d])
        inner[d] = box[d];
    return inner;
  case Op::Reshape: {
    if (const auto all = whole_box(node.shape); all && *all == box)
      return inner;
    const auto dims = same_dims(from, node.shape);
    if (!dims)
      return std::nullopt;
    for (const auto& [i, j] : *dims)
      inner[i] = box[j];
    return inner;
  }
  case Op::Pad:
    for (std::size_t d = 0; d < box.size(); ++d) {
      const Expr& before = node.attrs.before[d];
      if (!before.is_constant())
        return std::nullopt;
      inner[d] = {box[d].begin - before.value(), box[d].end - before.value()};
      if (inner[d].begin < 0 || inner[d].end > from[d].value())
        return std::nullopt;
    }
    return inner;
  case Op::Shrink:
    for (std::size_t d = 0; d < box.size(); ++d) {
      const Expr& begin = node.attrs.before[d];
      if (!begin.is_constant())
        return std::nullopt;
      inner[d] = {box[d].begin + begin.value(), box[d].end + begin.value()};
    }
    return inner;
  default:
    return std::nullopt;
  }
}

bool is_fill(const Graph& graph, NodeId pad, const Box& box) {
  const Node& node = graph[pad];
  const std::optional<Box> from = whole_box(graph[node.inputs[0]].shape);
  if (node.op != Op::Pad || !from)
    return false;
  for (std::size_t d = 0; d < box.size(); ++d) {
    const Expr& before = node.attrs.before[d];
    if (before.is_constant() &&
        (box[d].end <= before.value() || box[d].begin >= before.value() + (*from)[d].end))
      return true;
  }
  return false;
}

std::optional<bool> known_condition(const Graph& graph, NodeId condition, const Box& box) {
  const Node& node = graph[condition];
  switch (node.op) {
  case Op::Constant:
    return node.attrs.value.as_int() != 0;
  case Op::Lt:
  case Op::Eq: {
    const auto a = bounds_of(graph, node.inputs[0], box), b = bounds_of(graph, node.inputs[1], box);
    if (!a || !b)
      return std::nullopt;
    if (node.op == Op::Lt)
      return a->most < b->least    ? std::optional(true)
             : a->least >= b->most ? std::optional(false)
                                   : std::nullopt;
    if (a->most < b->least || b->most < a->least)
      return false;
    return a->least == a->most && b->least == b->most ? std::optional(true) : std::nullopt;
  }
  default:
    if (info_of(node.op).cls == OpClass::Movement)
      if (const auto inner = operand_box(graph, condition, box))
        return known_condition(graph, node.inputs[0], *inner);
    return std::nullopt;
  }
}

NodeId move_box(Graph& out, const Node& movement, NodeId operand, const Box& box) {
  switch (movement.op) {
  case Op::Permute:
    return out.permute(operand, movement.attrs.axes);
  case Op::Expand:
    return out.expand(operand, shape_of(box));
  case Op::Reshape:
    return out.reshape(operand, shape_of(box));
  default: // Pad, Shrink: the same elements
    return operand;
  }
}

NodeId shrink_to(Graph& out, NodeId id, const Box& box) {
  if (const auto all = whole_box(out[id].shape); all && *all == box)
    return id;
  std::vector<Expr> begin, end;
  for (const Range& range : box) {
    begin.emplace_back(range.begin);
    end.emplace_back(range.end);
  }
  return out.shrink(id, begin, end);
}

} // namespace egret::compiler
