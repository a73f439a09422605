#include "compiler/split_reductions.h"

#include "compiler/boxes.h"
#include "compiler/factors.h"
#include "compiler/views.h"
#include "ir/structure.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// Concatenations of more operands, and values of more nodes, are not looked at.
constexpr std::size_t kMostOperands = 4, kMostSeen = 256;

class ReductionSplitter {
public:
  explicit ReductionSplitter(const Graph& graph) : graph_(graph) {}

  Graph run() {
    bool any = false;
    Graph split = ir::rebuild(graph_, [&](Graph& out, NodeId id, std::span<const NodeId> operands) {
      const Node& node = graph_[id];
      const auto joints = joints_of(node);
      if (!joints)
        return out.add(node.op, operands, node.attrs);
      any = true;
      return by_operand(out, node, operands[0], *joints);
    });
    return any ? split : graph_;
  }

private:
  /// Where, along the reduced axis, one operand ends and the next one begins.
  std::optional<std::set<std::int64_t>> joints_of(const Node& node) {
    if ((node.op != Op::ReduceSum && node.op != Op::ReduceMax) || !is_float(node.dtype) ||
        node.attrs.axes.size() != 1)
      return std::nullopt;
    const auto axis = static_cast<std::size_t>(node.attrs.axes[0]);
    if (!whole_box(graph_[node.inputs[0]].shape))
      return std::nullopt;
    std::set<std::int64_t> joints;
    std::set<NodeId> seen;
    std::vector<NodeId> padded;
    std::vector<NodeId> waiting{node.inputs[0]};
    while (!waiting.empty()) {
      const NodeId id = waiting.back();
      waiting.pop_back();
      if (!seen.insert(id).second)
        continue;
      if (seen.size() > kMostSeen)
        return std::nullopt;
      const Node& value = graph_[id];
      if (is_elementwise(value.op)) {
        waiting.insert(waiting.end(), value.inputs.begin(), value.inputs.end());
      } else if (value.op == Op::Pad && value.attrs.before[axis].is_constant()) {
        const std::int64_t begin = value.attrs.before[axis].value();
        const std::int64_t end = begin + graph_[value.inputs[0]].shape[axis].value();
        const std::int64_t extent = value.shape[axis].value();
        if (begin == 0 && end == extent)
          continue;
        for (const std::int64_t joint : {begin, end})
          if (joint > 0 && joint < extent)
            joints.insert(joint);
        padded.push_back(value.inputs[0]);
      }
    }
    if (joints.empty() || joints.size() >= kMostOperands)
      return std::nullopt;
    if (!facts_)
      facts_.emplace(graph_);
    const bool large = std::ranges::any_of(
        padded, [&](NodeId id) { return is_made_of_large_products(*facts_, id); });
    return large ? std::optional(joints) : std::nullopt;
  }

  NodeId by_operand(Graph& out, const Node& node, NodeId operand,
                    const std::set<std::int64_t>& joints) const {
    const auto axis = static_cast<std::size_t>(node.attrs.axes[0]);
    Box box = *whole_box(graph_[node.inputs[0]].shape);
    std::vector<std::int64_t> ends(joints.begin(), joints.end());
    ends.push_back(box[axis].end);
    NodeId all = ir::kNoNode;
    for (std::int64_t begin = 0; const std::int64_t end : ends) {
      box[axis] = {begin, end};
      begin = end;
      const NodeId slice = shrink_to(out, operand, box);
      const NodeId own = box[axis].extent() == 1 ? out.reshape(slice, node.shape)
                                                 : out.reduce(node.op, slice, node.attrs.axes);
      const Op joined = node.op == Op::ReduceSum ? Op::Add : Op::Max;
      all = all == ir::kNoNode ? own : out.binary(joined, all, own);
    }
    return all;
  }

  const Graph& graph_;
  std::optional<GraphFacts> facts_; ///< once they are needed
};

} // namespace

Graph split_reductions(const Graph& graph) {
  return ReductionSplitter(graph).run();
}

} // namespace egret::compiler
