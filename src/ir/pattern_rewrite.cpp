// Applying a rewrite to all matches of its pattern.
#include "egret/pattern.h"

#include "ir/text.h"
#include "support/fail.h"

namespace egret::pattern {
namespace {

/// The match with its ids replaced by those of the graph being built.
Match moved_to(const Match& match, const std::vector<NodeId>& place) {
  Match result = match;
  result.root = place[match.root];
  for (auto& [name, id] : result.nodes)
    id = place[id];
  for (NodeId& id : result.covered)
    id = place[id];
  return result;
}

void check_replacement(const Rewrite& rule, const Graph& out, NodeId root, NodeId made) {
  if (made >= out.size())
    fail(ErrorKind::Value, "rewrite {}: the replacement %{} does not exist", rule.name, made);
  if (out[made].dtype != out[root].dtype)
    fail(ErrorKind::DType, "rewrite {}: the replacement is {}, what it replaces is {}", rule.name,
         ir::type_text(out[made]), ir::type_text(out[root]));
  if (out[made].shape != out[root].shape)
    fail(ErrorKind::Shape, "rewrite {}: the replacement is {}, what it replaces is {}", rule.name,
         ir::type_text(out[made]), ir::type_text(out[root]));
}

/// One round; the number of replaced matches.
std::size_t apply_once(Graph& graph, const Rewrite& rule) {
  std::vector<Match> matches = find(graph, rule.pattern);
  if (matches.empty())
    return 0;
  Graph out;
  std::size_t applied = 0, next = 0;
  std::vector<NodeId> place(graph.size(), ir::kNoNode), operands;
  std::vector<bool> replaced(graph.size());
  for (NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    operands.clear();
    for (NodeId in : node.inputs)
      operands.push_back(place[in]);
    place[id] = out.add(node.op, operands, node.attrs);
    if (next == matches.size() || matches[next].root != id)
      continue;
    const Match& match = matches[next++];
    bool intact = true;
    for (NodeId covered : match.covered)
      intact = intact && !replaced[covered];
    if (!intact)
      continue;
    NodeId made = rule.replace(out, moved_to(match, place));
    if (made == ir::kNoNode || made == place[id])
      continue;
    check_replacement(rule, out, place[id], made);
    place[id] = made;
    replaced[id] = true;
    ++applied;
  }
  for (NodeId id : graph.outputs)
    out.outputs.push_back(place[id]);
  graph = ir::without_dead_code(out);
  return applied;
}

} // namespace

Rewritten rewrite(const Graph& graph, const Rewrite& rule, std::size_t max_rounds) {
  Rewritten result{.graph = ir::without_dead_code(graph)};
  while (result.rounds < max_rounds) {
    std::size_t applied = apply_once(result.graph, rule);
    if (applied == 0)
      break;
    result.applied += applied;
    ++result.rounds;
  }
  ir::verify(result.graph);
  return result;
}

} // namespace egret::pattern
