// Applies the tables of identities to a graph, and the sequence of passes that the compiler runs
// first.
#include "egret/passes.h"

#include "ir/passes/rules.h"
#include "ir/shape_rules.h"
#include "support/fail.h"

#include <array>
#include <map>

namespace egret::passes {
namespace {

using RulesByOp = std::array<std::vector<const Rule*>, kOps>;

const RulesByOp& rules_by_op() {
  static const RulesByOp kByOp = [] {
    RulesByOp result;
    for (auto table : {arithmetic_rules(), logic_rules(), conversion_rules(), reduction_rules(),
                       movement_rules()})
      for (const Rule& rule : table)
        result[static_cast<std::size_t>(rule.op)].push_back(&rule);
    return result;
  }();
  return kByOp;
}

enum class Use { Folding, Rules, Both };

/// Adds nodes, each folded or simplified as far as its operands (which already are) tell.
class Simplifier {
public:
  using Counts = std::map<std::string_view, int>;
  Simplifier(Use use, Counts& counts) : use_(use), counts_(counts) {}

  NodeId add(Graph& out, Op op, std::span<const NodeId> operands, const ir::Attrs& attrs) {
    const ir::Node* nodes[3] = {};
    for (std::size_t i = 0; i < operands.size(); ++i)
      nodes[i] = &out[operands[i]];
    ir::Inferred inferred = ir::infer(op, {nodes, operands.size()}, attrs);
    Site site{out, op, operands, attrs, inferred.dtype, std::move(inferred.shape)};
    NodeId made = use_ == Use::Rules ? ir::kNoNode : fold(site);
    if (made == ir::kNoNode && use_ != Use::Folding)
      made = by_rule(site);
    return made == ir::kNoNode ? out.add(op, operands, attrs) : made;
  }

  bool has_fired() const { return has_fired_; }

private:
  void fired(std::string_view name) {
    ++counts_[name];
    has_fired_ = true;
  }

  NodeId fold(const Site& site) {
    auto value = folded_value(site);
    if (!value)
      return ir::kNoNode;
    NodeId made = site.filled(*value);
    // a broadcast constant is made of movements that fold to themselves
    if (made != site.out.add(site.op, site.in, site.attrs))
      fired("known values");
    return made;
  }

  NodeId by_rule(const Site& site) {
    for (const Rule* rule : rules_by_op()[static_cast<std::size_t>(site.op)]) {
      NodeId made = rule->apply(site);
      if (made == ir::kNoNode)
        continue;
      fired(rule->name);
      return made;
    }
    return ir::kNoNode;
  }

  Use use_;
  Counts& counts_;
  bool has_fired_ = false;
};

/// A rule's result may let another rule fire (two reshapes around a flip that vanishes), so rounds
/// follow until none does.
Graph simplified(const Graph& graph, Use use, Notes& notes) {
  constexpr int kMaxRounds = 16;
  Graph current = graph;
  Simplifier::Counts counts;
  bool settled = false; // a round in which nothing fires leaves no dead node
  for (int round = 0; round < kMaxRounds && !settled; ++round) {
    Simplifier simplifier(use, counts);
    current = ir::rebuild(current, [&](Graph& out, NodeId id, std::span<const NodeId> operands) {
      return simplifier.add(out, current[id].op, operands, current[id].attrs);
    });
    settled = !simplifier.has_fired();
  }
  for (const auto& [name, count] : counts)
    notes.push_back(fmt::format("{}: {}", name, count));
  return settled ? current : ir::without_dead_code(current);
}

Pass simplifying(const char* name, Use use) {
  return {name, [use](const Graph& graph, Notes& notes) { return simplified(graph, use, notes); }};
}

Graph without_markers(const Graph& graph, Notes& notes) {
  int dropped = 0;
  for (NodeId id = 0; id < graph.size(); ++id)
    dropped += graph[id].op == Op::StopGradient;
  if (dropped == 0)
    return graph;
  Graph result = ir::rebuild(graph, [&](Graph& out, NodeId id, std::span<const NodeId> operands) {
    if (graph[id].op != Op::StopGradient)
      return out.add(graph[id].op, operands, graph[id].attrs);
    return operands[0];
  });
  notes.push_back(fmt::format("stop_gradient: {}", dropped));
  return ir::without_dead_code(result);
}

} // namespace

Pass fold_constants() {
  return simplifying("fold_constants", Use::Folding);
}
Pass simplify() {
  return simplifying("simplify", Use::Rules);
}
Pass drop_markers() {
  return {"drop_markers", without_markers};
}

Pass dead_code() {
  return {"dead_code", [](const Graph& graph, Notes&) { return ir::without_dead_code(graph); }};
}

Pass normalize() {
  return drop_markers() | simplifying("fold_and_simplify", Use::Both) | dead_code();
}

} // namespace egret::passes
