#include "compiler/gather_tables.h"

#include "compiler/views.h"

#include <map>
#include <optional>
#include <vector>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// Elements of a slice beside each other that are worth a copy, at the least: 32 bytes of f32,
/// which memory gives at once.
constexpr std::int64_t kLeastSlice = 8;
/// Elements gathered by those of the table, at the least.
constexpr double kLeastUse = 2;

/// Elements in memory from one point of a view to the next along an axis of its box; nothing where
/// that is no constant. The base lies in row-major order.
std::optional<std::int64_t> stride_along(const GraphFacts& facts, NodeId id, std::size_t axis) {
  const View& view = facts.view(id);
  const IndexMap elements = compose(view.map, IndexMap::row_major(facts.graph()[view.base].shape));
  const auto slope =
      coefficient_of(elements.coords[0], Expr::axis(int(axis), facts.graph()[id].shape[axis]));
  return slope ? slope->constant() : std::nullopt;
}

/// Whether the gather reads slices of several neighbours that do not lie together.
bool reads_apart(const GraphFacts& facts, NodeId gather) {
  const Graph& graph = facts.graph();
  const Node& node = graph[gather];
  const NodeId table = node.inputs[0];
  const Shape& shape = graph[table].shape;
  std::size_t last = shape.size();
  while (last > 0 && shape[last - 1].is_constant() && shape[last - 1].value() == 1)
    --last;
  if (last == 0 || std::int64_t(last) - 1 <= node.attrs.axes.at(0) ||
      !shape[last - 1].is_constant() || shape[last - 1].value() < kLeastSlice ||
      elements_of(node.shape) < kLeastUse * elements_of(shape))
    return false;
  const std::optional<std::int64_t> stride = stride_along(facts, table, last - 1);
  return stride && *stride > 1;
}

} // namespace

Graph with_gather_tables(const Graph& graph) {
  const GraphFacts facts(graph);
  std::vector<bool> apart(graph.size(), false);
  bool any = false;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (graph[id].op == Op::Gather)
      any |= apart[id] = reads_apart(facts, id);
  if (!any)
    return graph;
  Graph to;
  std::vector<NodeId> now(graph.size(), ir::kNoNode);
  std::map<NodeId, NodeId> copies; // by table
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    if (node.op == Op::Input) {
      now[id] = to.input(node.attrs.name, node.dtype, node.shape, node.attrs.by_value);
      continue;
    }
    std::vector<NodeId> inputs;
    for (const NodeId input : node.inputs)
      inputs.push_back(now[input]);
    if (apart[id]) {
      const auto [copy, fresh] = copies.try_emplace(node.inputs[0], ir::kNoNode);
      if (fresh)
        copy->second = to.unary(Op::StopGradient, inputs[0]); // the identity
      inputs[0] = copy->second;
    }
    now[id] = to.add(node.op, inputs, node.attrs);
  }
  for (const NodeId id : graph.outputs)
    to.outputs.push_back(now[id]);
  return to;
}

} // namespace egret::compiler
