#include "compiler/values/launch_piece.h"

#include "compiler/views.h"

#include <algorithm>

namespace egret::compiler {

using backend::reference::HostArray;
using ir::NodeId;

LaunchPiece piece_of(const ir::Graph& graph, std::span<const NodeId> operands,
                     std::span<const NodeId> outputs) {
  LaunchPiece piece;
  std::vector<NodeId> place(graph.size(), ir::kNoNode);
  const auto add_input = [&](NodeId id) {
    const ir::Node& node = graph[id];
    place[id] = piece.graph.input(node.op == Op::Input ? node.attrs.name : fmt::format("v{}", id),
                                  node.dtype, node.shape);
    piece.inputs.push_back(id);
  };
  for (const NodeId id : graph.inputs())
    add_input(id);
  for (const NodeId id : operands)
    if (place[id] == ir::kNoNode)
      add_input(id);
  std::vector<bool> needed(graph.size(), false);
  for (const NodeId id : outputs)
    needed[id] = true;
  for (std::size_t id = graph.size(); id-- > 0;)
    if (needed[id] && place[id] == ir::kNoNode)
      for (const NodeId operand : graph[static_cast<NodeId>(id)].inputs)
        needed[operand] = true;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (!needed[id] || place[id] != ir::kNoNode)
      continue;
    std::vector<NodeId> inputs;
    for (const NodeId operand : graph[id].inputs)
      inputs.push_back(place[operand]);
    place[id] = piece.graph.add(graph[id].op, inputs, graph[id].attrs);
  }
  for (const NodeId id : outputs)
    piece.graph.outputs.push_back(place[id]);
  piece.nodes.assign(piece.graph.size(), ir::kNoNode);
  for (NodeId id = 0; id < graph.size(); ++id)
    if (place[id] != ir::kNoNode)
      piece.nodes[place[id]] = id;
  return piece;
}

std::optional<std::vector<HostArray>>
arrays_of(const LaunchPiece& piece, std::span<const NodeId> operands,
          const std::function<std::optional<HostArray>(NodeId)>& value,
          const std::function<backend::reference::Dims(NodeId)>& dims) {
  std::vector<HostArray> arrays;
  for (std::size_t i = 0; i < piece.inputs.size(); ++i) {
    const NodeId id = piece.inputs[i];
    if (std::ranges::find(operands, id) == operands.end()) {
      arrays.emplace_back(piece.graph[piece.graph.inputs()[i]].dtype, dims(id));
      continue;
    }
    std::optional<HostArray> known = value(id);
    if (!known)
      return std::nullopt;
    arrays.push_back(std::move(*known));
  }
  return arrays;
}

bool is_small(const LaunchPiece& piece) {
  constexpr double kMostElements = 1 << 25;
  double elements = 0;
  for (NodeId id = 0; id < piece.graph.size(); ++id)
    elements += elements_of(piece.graph[id].shape);
  return elements <= kMostElements;
}

} // namespace egret::compiler
