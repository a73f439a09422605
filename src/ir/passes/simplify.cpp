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

/// Adds nodes, each simplified as far as its operands (which already are) tell.
class Simplifier {
public:
  explicit Simplifier(std::map<std::string_view, int>& counts) : counts_(counts) {}

  NodeId add(Graph& out, Op op, std::span<const NodeId> operands, const ir::Attrs& attrs) {
    const ir::Node* nodes[3] = {};
    for (std::size_t i = 0; i < operands.size(); ++i)
      nodes[i] = &out[operands[i]];
    ir::Inferred inferred = ir::infer(op, {nodes, operands.size()}, attrs);
    Site site{out, op, operands, attrs, inferred.dtype, std::move(inferred.shape)};
    for (const Rule* rule : rules_by_op()[static_cast<std::size_t>(op)]) {
      NodeId made = rule->apply(site);
      if (made == ir::kNoNode)
        continue;
      ++counts_[rule->name];
      has_fired_ = true;
      return made;
    }
    return out.add(op, operands, attrs);
  }

  bool has_fired() const { return has_fired_; }

private:
  std::map<std::string_view, int>& counts_;
  bool has_fired_ = false;
};

/// A rule's result may let another rule fire (two reshapes around a flip that vanishes), so rounds
/// follow until none does.
Graph simplified(const Graph& graph, Notes& notes) {
  constexpr int kMaxRounds = 16;
  Graph current = graph;
  std::map<std::string_view, int> counts;
  for (int round = 0; round < kMaxRounds; ++round) {
    Simplifier simplifier(counts);
    current = ir::rebuild(current, [&](Graph& out, NodeId id, std::span<const NodeId> operands) {
      return simplifier.add(out, current[id].op, operands, current[id].attrs);
    });
    if (!simplifier.has_fired())
      break;
  }
  for (const auto& [name, count] : counts)
    notes.push_back(fmt::format("{}: {}", name, count));
  return ir::without_dead_code(current);
}

Graph without_markers(const Graph& graph, Notes& notes) {
  int dropped = 0;
  Graph result = ir::rebuild(graph, [&](Graph& out, NodeId id, std::span<const NodeId> operands) {
    if (graph[id].op != Op::StopGradient)
      return out.add(graph[id].op, operands, graph[id].attrs);
    ++dropped;
    return operands[0];
  });
  if (dropped != 0)
    notes.push_back(fmt::format("stop_gradient: {}", dropped));
  return ir::without_dead_code(result);
}

} // namespace

Pass simplify() {
  return {"simplify", simplified};
}
Pass drop_markers() {
  return {"drop_markers", without_markers};
}

Pass dead_code() {
  return {"dead_code", [](const Graph& graph, Notes&) { return ir::without_dead_code(graph); }};
}

Pass normalize() {
  // Folding meets new constants after simplification and the other way round; once more each is
  // enough for all but contrived graphs, and no later stage relies on there being none left.
  return drop_markers() | fold_constants() | simplify() | fold_constants() | simplify() |
         dead_code();
}

} // namespace egret::passes
