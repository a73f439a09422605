#include "compiler/prepare.h"

#include <set>

namespace egret::compiler {

using ir::NodeId;

namespace {

/// Follows reshapes down to the node whose memory, row-major, is the same.
NodeId same_memory(const ir::Graph& graph, NodeId id) {
  while (graph[id].op == Op::Reshape)
    id = graph[id].inputs[0];
  return id;
}

bool is_stored_value(const ir::Graph& graph, NodeId id) {
  const Op op = graph[id].op;
  return !is_movement(op) && info_of(op).cls != OpClass::Source;
}

} // namespace

ir::Graph prepare_outputs(const ir::Graph& graph) {
  ir::Graph result;
  std::vector<NodeId> to(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    std::vector<NodeId> inputs;
    for (NodeId input : node.inputs)
      inputs.push_back(to[input]);
    if (info_of(node.op).cls == OpClass::Scatter && !is_stored_value(result, inputs[0]))
      inputs[0] = result.add(Op::StopGradient, std::vector<NodeId>{inputs[0]});
    to[id] = node.op == Op::Input ? result.input(node.attrs.name, node.dtype, node.shape, node.attrs.by_value)
                                  : result.add(node.op, inputs, node.attrs);
  }
  std::set<NodeId> taken;
  for (NodeId id : graph.outputs) {
    NodeId output = to[id];
    while (!is_stored_value(result, same_memory(result, output)) || taken.count(same_memory(result, output)))
      output = result.add(Op::StopGradient, std::vector<NodeId>{output});
    taken.insert(same_memory(result, output));
    result.outputs.push_back(output);
  }
  return result;
}

} // namespace egret::compiler
