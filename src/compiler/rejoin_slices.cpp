#include "compiler/rejoin_slices.h"

#include "compiler/additions.h"
#include "compiler/unrolled_factors.h"
#include "ir/structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// A slice with zeros before and behind it, along one axis.
struct PaddedSlice {
  NodeId pad = 0;
  UnrolledFactor slice;
  std::size_t axis = 0; ///< of the pad; there the slice has one element
  std::int64_t before = 0;
};

class Rejoiner {
public:
  explicit Rejoiner(const Graph& graph) : graph_(graph), additions_(graph), to_(graph.size()) {}

  Graph run() {
    bool any = false;
    const Graph changed =
        ir::rebuild(graph_, [&](Graph& out, NodeId id, std::span<const NodeId> operands) {
          if (out_ == nullptr)
            for (std::size_t slot = 0; slot < graph_.inputs().size(); ++slot)
              to_[graph_.inputs()[slot]] = out.inputs()[slot];
          out_ = &out;
          if (additions_.is_last(id))
            if (const auto sum = rejoined(id)) {
              any = true;
              return to_[id] = *sum;
            }
          return to_[id] = out.add(graph_[id].op, operands, graph_[id].attrs);
        });
    return any ? ir::without_dead_code(changed) : graph_;
  }

private:
  std::optional<PaddedSlice> padded_slice(NodeId id) const {
    const Node& node = graph_[id];
    if (node.op != Op::Pad || node.attrs.value.as_double() != 0)
      return std::nullopt;
    PaddedSlice found{id, unrolled_factor(graph_, node.inputs[0])};
    int axes = 0;
    for (std::size_t d = 0; d < node.shape.size(); ++d) {
      const Expr &before = node.attrs.before[d], &after = node.attrs.after[d];
      if (before == Expr(0) && after == Expr(0))
        continue;
      if (!before.is_constant() || !after.is_constant())
        return std::nullopt;
      ++axes;
      found.axis = d;
      found.before = before.value();
    }
    const bool repeats = std::any_of(found.slice.moves.begin(), found.slice.moves.end(),
                                     [&](NodeId move) { return graph_[move].op == Op::Expand; });
    if (axes != 1 || repeats || !found.slice.is_slice ||
        !(graph_[node.inputs[0]].shape[found.axis] == Expr(1)))
      return std::nullopt;
    return found;
  }

  std::optional<NodeId> rejoined(NodeId last) {
    std::map<std::string, std::vector<PaddedSlice>> alike;
    const std::vector<NodeId> terms = additions_.terms(last);
    for (const NodeId term : terms)
      if (auto slice = padded_slice(term))
        alike[fmt::format("{} of axis {} of {}: {}", slice->axis, slice->slice.axis,
                          slice->slice.whole, form_of(graph_, slice->slice))]
            .push_back(std::move(*slice));
    std::set<NodeId> joined;
    std::vector<NodeId> parts;
    for (auto& [text, slices] : alike) {
      std::sort(slices.begin(), slices.end(), [](const PaddedSlice& a, const PaddedSlice& b) {
        return a.slice.index < b.slice.index;
      });
      for (std::size_t first = 0, end = 0; first < slices.size(); first = end) {
        for (end = first + 1; end < slices.size() && follows(slices[end - 1], slices[end]);)
          ++end;
        if (end - first < 2)
          continue;
        parts.push_back(whole_of(slices[first], static_cast<std::int64_t>(end - first)));
        for (std::size_t i = first; i < end; ++i)
          joined.insert(slices[i].pad);
      }
    }
    if (parts.empty())
      return std::nullopt;
    for (const NodeId term : terms)
      if (!joined.contains(term))
        parts.push_back(to_[term]);
    NodeId sum = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i)
      sum = out_->binary(Op::Add, sum, parts[i]);
    return sum;
  }

  static bool follows(const PaddedSlice& a, const PaddedSlice& b) {
    return b.slice.index == a.slice.index + 1 && b.before == a.before + 1;
  }

  /// `count` slices from the first one on, where they are padded to.
  NodeId whole_of(const PaddedSlice& first, std::int64_t count) {
    const NodeId slices =
        slices_in_front(*out_, graph_, first.slice, to_[first.slice.whole], count);
    const NodeId all =
        front_as_axis(*out_, moved_behind_front(*out_, graph_, first.slice, slices), first.axis);
    const Node& pad = graph_[first.pad];
    std::vector<Expr> before = pad.attrs.before, after = pad.attrs.after;
    after[first.axis] = after[first.axis] - Expr(count - 1);
    return out_->pad(all, before, after, pad.attrs.value);
  }

  const Graph& graph_;
  Additions additions_;
  Graph* out_ = nullptr; ///< while it is made
  std::vector<NodeId> to_;
};

} // namespace

Graph rejoin_slices(const Graph& graph) {
  return Rejoiner(graph).run();
}

} // namespace egret::compiler
