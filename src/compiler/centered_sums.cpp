#include "compiler/centered_sums.h"

#include "compiler/factors.h"
#include "compiler/views.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// Sums of more terms, and values made of more additions, are not looked at.
constexpr int kDeepest = 8;

class Centered {
public:
  explicit Centered(const Graph& graph) : graph_(graph), facts_(graph), read_(facts_) {}

  Graph run() {
    Graph out;
    std::vector<NodeId> to(graph_.size(), ir::kNoNode);
    for (const NodeId id : graph_.inputs()) // in their slots
      to[id] = out.add(Op::Input, {}, graph_[id].attrs);
    bool changed = false;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_[id];
      if (node.op == Op::Input)
        continue;
      const auto kept = is_sum(node) ? addends(id) : std::nullopt;
      changed = changed || kept;
      if (!kept) {
        std::vector<NodeId> inputs;
        for (const NodeId input : node.inputs)
          inputs.push_back(to[input]);
        to[id] = out.add(node.op, inputs, node.attrs);
        continue;
      }
      if (kept->empty()) {
        const NodeId zero = out.constant(Scalar::of(node.dtype, 0.0));
        to[id] = out.expand(out.reshape(zero, Shape(node.shape.size(), Expr(1))), node.shape);
        continue;
      }
      NodeId term = ir::kNoNode;
      for (const Addend& addend : *kept) {
        NodeId value = to[addend.value];
        for (const NodeId factor : addend.factors)
          value = out.binary(Op::Mul, value, to[factor]);
        term = term == ir::kNoNode ? value : out.binary(Op::Add, term, value);
      }
      to[id] = out.reduce(Op::ReduceSum, term, node.attrs.axes);
    }
    if (!changed)
      return graph_;
    for (const NodeId id : graph_.outputs)
      out.outputs.push_back(to[id]);
    return ir::without_dead_code(out);
  }

private:
  /// A value, times some that are the same for all terms of a row; all have the sum's box.
  struct Addend {
    NodeId value;
    std::vector<NodeId> factors;
  };

  /// What a sum has to add up where that is less than it does.
  std::optional<std::vector<Addend>> addends(NodeId sum) const {
    const SumBox box(graph_, sum);
    std::vector<Addend> all{{graph_[sum].inputs[0], {}}}, kept;
    bool less = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Addend addend = all[i];
      const Node& node = graph_[addend.value];
      const bool more = int(all.size()) < kDeepest;
      if (sums_to_zero(addend.value, box.axis, box, 0)) {
        less = true;
      } else if (node.op == Op::Add && more) {
        for (const NodeId input : node.inputs)
          all.push_back({input, addend.factors});
      } else if (const int k = node.op == Op::Mul && more ? shared_factor(node, box) : -1; k >= 0) {
        all.push_back({node.inputs[std::size_t(1 - k)], addend.factors});
        all.back().factors.push_back(node.inputs[std::size_t(k)]);
      } else {
        kept.push_back(addend);
      }
    }
    return less ? std::optional(kept) : std::nullopt;
  }

  /// Which factor of a sum of values is the same for all terms of a row; -1: none is.
  int shared_factor(const Node& mul, const SumBox& box) const {
    for (const int k : {0, 1}) {
      std::vector<Leaf> leaves;
      if (graph_[mul.inputs[std::size_t(1 - k)]].op == Op::Add &&
          read_.read(mul.inputs[std::size_t(k)], box.axis, false, leaves) &&
          std::ranges::none_of(leaves, [&](const Leaf& l) { return l.depends(box.over); }))
        return k;
    }
    return -1;
  }

  /// Whether a value whose dims are these axes adds up to 0 over those that are summed.
  bool sums_to_zero(NodeId id, const std::vector<int>& axis, const SumBox& box, int depth) const {
    std::vector<Leaf> leaves;
    if (depth > kDeepest || !read_.read(id, axis, false, leaves))
      return false;
    const Leaf* along = nullptr; // the one factor that is not the same for all terms
    for (const Leaf& l : leaves)
      if (l.depends(box.over)) {
        if (along || l.divides)
          return false;
        along = &l;
      }
    if (!along || graph_[along->base].op != Op::Add || !read_.has_all(*along, box))
      return false;
    const Node& add = graph_[along->base];
    return read_.is_deviation(*along, box) ||
           (sums_to_zero(add.inputs[0], along->axis, box, depth + 1) &&
            sums_to_zero(add.inputs[1], along->axis, box, depth + 1));
  }

  const Graph& graph_;
  GraphFacts facts_;
  FactorReader read_;
};

} // namespace

Graph without_centered_sums(const Graph& graph) {
  return Centered(graph).run();
}

} // namespace egret::compiler
