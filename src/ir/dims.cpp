// Symbolic dims of whole graphs.
#include "egret/ir.h"

#include "ir/structure.h"

#include <map>

namespace egret::ir {

std::vector<Expr> symbols_of(const Graph& graph) {
  std::map<std::string, Expr> symbols;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Attrs& a = graph[id].attrs;
    for (const auto* list : {&graph[id].shape, &a.shape, &a.before, &a.after})
      for (const Expr& e : *list)
        if (!e.is_constant())
          for (const Expr& symbol : variables_of(e))
            symbols.emplace(symbol.str(), symbol);
  }
  std::vector<Expr> result;
  for (const auto& [name, symbol] : symbols)
    result.push_back(symbol);
  return result;
}

Graph with_dims(const Graph& graph,
                const std::function<std::optional<Expr>(const Expr& symbol)>& replace) {
  auto replaced = [&](Attrs attrs) {
    for (auto* list : {&attrs.shape, &attrs.before, &attrs.after})
      for (Expr& e : *list)
        if (!e.is_constant())
          e = substitute(e, replace);
    return attrs;
  };
  Graph result;
  std::vector<NodeId> moved(graph.size(), kNoNode), operands;
  for (NodeId id : graph.inputs())
    moved[id] = result.add(Op::Input, {}, replaced(graph[id].attrs));
  for (NodeId id : canonical_order(graph)) {
    operands.clear();
    for (NodeId in : graph[id].inputs)
      operands.push_back(moved[in]);
    moved[id] = result.add(graph[id].op, operands, replaced(graph[id].attrs));
  }
  for (NodeId id : graph.outputs)
    result.outputs.push_back(moved[id]);
  return result;
}

} // namespace egret::ir
