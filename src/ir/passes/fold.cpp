// Constant folding: which nodes have one known value in every element, by the definitions of the op
// table.
#include "egret/passes.h"

#include "ir/structure.h"
#include "support/fail.h"

#include <optional>

namespace egret::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;

bool has_no_elements(const Shape& shape) {
  for (const Expr& dim : shape)
    if (dim == Expr(0))
      return true;
  return false;
}

/// Sums and products of equal values, where they are exact in any order.
std::optional<Scalar> total(Monoid monoid, const Scalar& value, const Expr& count) {
  Scalar identity = identity_of(monoid, value.dtype);
  if (count == Expr(0))
    return identity;
  if (value == identity || (monoid == Monoid::Sum && value.as_double() == 0))
    return identity;
  if (monoid == Monoid::Max && count.lower() >= 1)
    return value;
  if (monoid == Monoid::Sum && is_integer(value.dtype) && count.is_constant()) {
    Scalar both[] = {value, Scalar::of(value.dtype, count.value())};
    return apply(Op::Mul, value.dtype, both);
  }
  return std::nullopt;
}

class Values {
public:
  explicit Values(const Graph& graph) : graph_(graph), known_(graph.size()) {
    for (NodeId id = 0; id < graph.size(); ++id)
      if (graph[id].op != Op::Input)
        known_[id] = has_no_elements(graph[id].shape) ? Scalar::of(graph[id].dtype, std::int64_t{0})
                                                      : value_of(graph[id]);
  }

  const std::optional<Scalar>& operator[](NodeId id) const { return known_[id]; }

private:
  std::optional<Scalar> value_of(const Node& node) const {
    OpClass cls = info_of(node.op).cls;
    if (node.op == Op::Constant)
      return node.attrs.value;
    if (node.op == Op::Iota)
      return node.shape[0] == Expr(1) ? std::optional(Scalar::of(node.dtype, std::int64_t{0}))
                                      : std::nullopt;
    if (is_elementwise(node.op))
      return applied(node);
    if (cls == OpClass::Reduce)
      return reduced(node);
    const std::optional<Scalar>& first = known_[node.inputs[0]];
    if (!first)
      return std::nullopt;
    if (node.op == Op::Pad)
      return *first == node.attrs.value ? first : std::nullopt;
    if (cls == OpClass::Movement)
      return first;
    if (cls == OpClass::Scan)
      return node.op == Op::ScanMax || *first == identity_of(monoid_of(node.op), first->dtype)
                 ? first
                 : std::nullopt;
    if (cls == OpClass::Gather)
      return first->bits == 0 ? first : std::nullopt;
    return std::nullopt;
  }

  std::optional<Scalar> applied(const Node& node) const {
    Scalar operands[3];
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const std::optional<Scalar>& value = known_[node.inputs[i]];
      if (!value)
        return std::nullopt;
      operands[i] = *value;
    }
    return apply(node.op, node.dtype, {operands, node.inputs.size()});
  }

  std::optional<Scalar> reduced(const Node& node) const {
    const std::optional<Scalar>& value = known_[node.inputs[0]];
    if (!value)
      return std::nullopt;
    if (node.op == Op::ReduceArgMax)
      return Scalar::of(DType::I64, std::int64_t{0});
    Shape over;
    for (std::int64_t axis : node.attrs.axes)
      over.push_back(graph_[node.inputs[0]].shape[static_cast<std::size_t>(axis)]);
    return total(monoid_of(node.op), *value, element_count(over));
  }

  const Graph& graph_;
  std::vector<std::optional<Scalar>> known_;
};

Graph fold(const Graph& graph, Notes& notes) {
  Values values(graph);
  std::size_t folded = 0;
  Graph result = ir::rebuild(graph, [&](Graph& out, NodeId id, std::span<const NodeId> operands) {
    const Node& node = graph[id];
    const auto& value = values[id];
    if (!value || node.op == Op::Constant)
      return out.add(node.op, operands, node.attrs);
    if (!is_movement(node.op))
      ++folded;
    return out.broadcast(out.constant(*value), node.shape);
  });
  if (folded != 0)
    notes.push_back(fmt::format("nodes with a known value: {}", folded));
  return ir::without_dead_code(result);
}

} // namespace

Pass fold_constants() {
  return {"fold_constants", fold};
}

} // namespace egret::passes
