#include "compiler/additions.h"

namespace egret::compiler {

using ir::NodeId;

Additions::Additions(const ir::Graph& graph)
    : graph_(graph), users_(graph.size()), is_output_(graph.size(), false) {
  for (NodeId id = 0; id < graph.size(); ++id)
    for (const NodeId input : graph[id].inputs)
      users_[input].push_back(id);
  for (const NodeId id : graph.outputs)
    is_output_[id] = true;
}

bool Additions::is_inner(NodeId id) const {
  return graph_[id].op == Op::Add && users_[id].size() == 1 &&
         graph_[users_[id][0]].op == Op::Add && !is_output_[id];
}

bool Additions::is_last(NodeId id) const {
  return graph_[id].op == Op::Add && is_float(graph_[id].dtype) && !is_inner(id);
}

std::vector<NodeId> Additions::terms(NodeId last) const {
  std::vector<NodeId> terms, open{last};
  while (!open.empty()) {
    const NodeId at = open.back();
    open.pop_back();
    if (at == last || is_inner(at))
      open.insert(open.end(), graph_[at].inputs.rbegin(), graph_[at].inputs.rend());
    else
      terms.push_back(at);
  }
  return terms;
}

} // namespace egret::compiler
