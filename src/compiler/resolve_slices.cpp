#include "compiler/resolve_slices.h"

#include "compiler/boxes.h"
#include "ir/structure.h"

#include <algorithm>
#include <map>
#include <vector>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// Operations that a slice is computed by at the most, and nodes that are looked at for it.
constexpr int kMostOperations = 16, kMostSeen = 256;

class SliceResolver {
public:
  explicit SliceResolver(const Graph& graph) : graph_(graph), to_(graph.size()) {}

  Graph run() {
    bool any = false;
    const Graph resolved =
        ir::rebuild(graph_, [&](Graph& out, NodeId id, std::span<const NodeId> operands) {
          const Node& node = graph_[id];
          if (out_ == nullptr)
            for (std::size_t slot = 0; slot < graph_.inputs().size(); ++slot)
              to_[graph_.inputs()[slot]] = out.inputs()[slot];
          out_ = &out;
          if (const auto box = slice_of(node)) {
            found_.clear();
            if (const Found found = find(node.inputs[0], *box);
                found.resolved && found.operations <= kMostOperations) {
              any = true;
              return to_[id] = make(node.inputs[0], *box);
            }
          }
          return to_[id] = out.add(node.op, operands, node.attrs);
        });
    return any ? ir::without_dead_code(resolved) : graph_;
  }

private:
  /// What a value is within a box.
  struct Found {
    enum class As { Slice, Left, Right, Inside, Fill, Computed } as = As::Slice;
    bool resolved = false; ///< of fewer values than the whole is made of
    int operations = 0;
  };

  std::optional<Box> slice_of(const Node& node) const {
    if (node.op != Op::Shrink || !whole_box(graph_[node.inputs[0]].shape))
      return std::nullopt;
    Box box;
    for (std::size_t d = 0; d < node.shape.size(); ++d) {
      const Expr &begin = node.attrs.before[d], &end = node.attrs.shape[d];
      if (!begin.is_constant() || !end.is_constant() || end.value() <= begin.value())
        return std::nullopt;
      box.push_back({begin.value(), end.value()});
    }
    return box;
  }

  const Found& find(NodeId id, const Box& box) {
    const auto key = std::pair(id, box);
    if (const auto it = found_.find(key); it != found_.end())
      return it->second;
    const Found found = found_.size() < kMostSeen ? look(id, box) : Found{};
    return found_[key] = found;
  }

  Found look(NodeId id, const Box& box) {
    using As = Found::As;
    const Node& node = graph_[id];
    if (const auto all = whole_box(node.shape); !all || *all == box)
      return {};
    if (node.op == Op::Select)
      if (const auto known = known_condition(graph_, node.inputs[0], box)) {
        const Found& side = find(node.inputs[*known ? 1 : 2], box);
        return {*known ? As::Left : As::Right, true, side.operations};
      }
    if (node.op == Op::Pad && is_fill(graph_, id, box))
      return {As::Fill, true, 0};
    if (info_of(node.op).cls == OpClass::Movement) {
      const auto inner = operand_box(graph_, id, box);
      if (!inner)
        return {};
      const Found& operand = find(node.inputs[0], *inner);
      return {As::Inside, node.op == Op::Pad || operand.resolved, operand.operations};
    }
    if (!is_elementwise(node.op))
      return {};
    Found all{As::Computed, false, 1};
    for (const NodeId input : node.inputs) {
      const Found& operand = find(input, box);
      all.resolved = all.resolved || operand.resolved;
      // A value that is used twice counts twice, as it would be computed: sums double from level to
      // level, so they end where they are too many.
      all.operations = std::min(all.operations + operand.operations, kMostOperations + 1);
    }
    return all.resolved ? all : Found{};
  }

  NodeId make(NodeId id, const Box& box) {
    using As = Found::As;
    const Node& node = graph_[id];
    switch (find(id, box).as) {
    case As::Slice:
      return shrink_to(*out_, to_[id], box);
    case As::Left:
      return make(node.inputs[1], box);
    case As::Right:
      return make(node.inputs[2], box);
    case As::Fill:
      return out_->broadcast(out_->constant(node.attrs.value), shape_of(box));
    case As::Inside: {
      const Box inner = *operand_box(graph_, id, box);
      return move_box(*out_, node, make(node.inputs[0], inner), box);
    }
    case As::Computed:
      break;
    }
    std::vector<NodeId> inputs;
    for (const NodeId input : node.inputs)
      inputs.push_back(make(input, box));
    return out_->add(node.op, inputs, node.attrs);
  }

  const Graph& graph_;
  Graph* out_ = nullptr; ///< while it is made
  std::vector<NodeId> to_;
  std::map<std::pair<NodeId, Box>, Found> found_; ///< for the slice at hand
};

} // namespace

Graph resolve_slices(const Graph& graph) {
  return SliceResolver(graph).run();
}

} // namespace egret::compiler
