#include "compiler/attention_delta.h"

#include "compiler/factors.h"
#include "compiler/views.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// A sum that can be had from a mixture: what multiplies the mixture, and which axes are which.
struct Shorter {
  std::vector<Leaf> rows;    ///< numbers and divisors of the row, over the sum's box
  std::vector<Leaf> factors; ///< of the inner products, that of the mixture left out
  Leaf mixture;              ///< base: the mixture's sum
  std::map<int, Expr> depth; ///< axes that the inner products sum over
};

class Shortener {
public:
  explicit Shortener(const Graph& graph) : graph_(graph), facts_(graph), read_(facts_) {
    for (NodeId id = 0; id < graph.size(); ++id)
      if (is_sum(graph[id]))
        sums_.push_back(id);
    for (NodeId id : sums_)
      if (auto shorter = find(id))
        found_.emplace(id, std::move(*shorter));
  }

  Graph run() {
    if (found_.empty())
      return graph_;
    to_.assign(graph_.size(), ir::kNoNode);
    for (NodeId id : graph_.inputs()) // in their slots
      to_[id] = out_.add(Op::Input, {}, graph_[id].attrs);
    for (NodeId id : graph_.outputs)
      copy(id);
    for (NodeId id : graph_.outputs)
      out_.outputs.push_back(to_[id]);
    return ir::without_dead_code(out_);
  }

private:
  /// The terms of a sum of inner products, taken apart.
  struct Terms {
    std::vector<Leaf> along; ///< factors that depend on the summed axes
    std::vector<Leaf> inner, rows;
    std::set<int> summed;
    std::map<int, Expr> depth;
  };

  std::optional<Shorter> find(NodeId id) const {
    std::vector<Leaf> leaves;
    const std::set<int> summed = summed_axes(graph_[id]);
    const NodeId term = graph_[id].inputs[0];
    if (facts_.product_of(id) != ir::kNoNode ||
        !read_.read(term, own_axes(graph_, term), false, leaves))
      return std::nullopt;
    for (std::size_t l = 0; l < leaves.size(); ++l) {
      if (leaves[l].divides || facts_.product_of(leaves[l].base) == ir::kNoNode ||
          !leaves[l].depends(summed))
        continue;
      // Other products are made once anyway, and a sum that read their factors instead would wait
      // for what overwrites these.
      if (!is_larger_than_its_factors(facts_, leaves[l].base))
        continue;
      std::vector<Leaf> rest = leaves;
      rest.erase(rest.begin() + std::ptrdiff_t(l));
      if (const auto terms = apart(leaves[l], std::move(rest), summed, graph_[term].shape.size()))
        // The mixture does not depend on this sum: whatever it is made of, this sum is made of,
        // too.
        for (NodeId sum : sums_)
          if (sum != id)
            if (auto shorter = from_mixture(*terms, sum))
              return shorter;
    }
    return std::nullopt;
  }

  std::optional<Terms> apart(const Leaf& product, std::vector<Leaf> leaves,
                             const std::set<int>& summed, std::size_t rank) const {
    Terms t;
    t.summed = summed;
    const Node& sum = graph_[product.base];
    const std::set<int> over = summed_axes(sum);
    const Shape& frame = graph_[sum.inputs[0]].shape;
    std::vector<int> axis;
    std::set<int> depth;
    std::size_t dim = 0;
    for (std::size_t i = 0; i < frame.size(); ++i) {
      if (!over.contains(int(i))) {
        axis.push_back(product.axis[dim++]);
        continue;
      }
      axis.push_back(is_unit(frame[i]) ? -1 : int(rank + depth.size()));
      if (axis.back() >= 0) {
        depth.insert(axis.back());
        t.depth.emplace(axis.back(), frame[i]);
      }
    }
    if (!read_.read(sum.inputs[0], axis, false, leaves))
      return std::nullopt;
    for (Leaf& l : leaves) {
      if (l.depends(summed))
        t.along.push_back(std::move(l));
      else if (!l.depends(depth))
        t.rows.push_back(std::move(l));
      else if (!l.divides)
        t.inner.push_back(std::move(l));
      else
        return std::nullopt;
    }
    return all_known(t.rows, true) && !t.inner.empty() ? std::optional(t) : std::nullopt;
  }

  /// Whether factors of rows are numbers, or divisors that are no less than 1.
  bool all_known(const std::vector<Leaf>& rows, bool numbers) const {
    return std::all_of(rows.begin(), rows.end(), [&](const Leaf& l) {
      const Node& node = graph_[l.base];
      if (node.op == Op::Constant)
        return numbers && !l.divides && std::isfinite(node.attrs.value.as_double());
      return l.divides && read_.is_sum_of_exponentials(l.base);
    });
  }

  /// Whether `sum` is the mixture by the factors along the summed axes.
  std::optional<Shorter> from_mixture(const Terms& t, NodeId sum) const {
    const NodeId term = graph_[sum].inputs[0];
    const std::set<int> summed = summed_axes(graph_[sum]);
    std::vector<Leaf> along, rows;
    if (!read_.read(term, own_axes(graph_, term), false, along))
      return std::nullopt;
    std::erase_if(along, [&](const Leaf& l) {
      if (l.depends(summed))
        return false;
      rows.push_back(l);
      return true;
    });
    if (along.size() != t.along.size() || !all_known(rows, false))
      return std::nullopt;
    // Which axis of the mixture's terms is which.
    std::map<int, int> same;
    std::set<int> taken;
    const auto match = [&](int mine, int other) {
      if (mine < 0 || other < 0)
        return mine == other;
      const auto [it, fresh] = same.emplace(mine, other);
      return fresh ? taken.insert(other).second : it->second == other;
    };
    std::vector<bool> used(along.size(), false);
    for (const Leaf& wanted : t.along) {
      bool ok = false;
      for (std::size_t i = 0; i < along.size() && !ok; ++i) {
        if (used[i] || along[i].base != wanted.base || along[i].divides != wanted.divides)
          continue;
        used[i] = ok = true;
        for (std::size_t d = 0; d < wanted.axis.size(); ++d)
          if (!match(along[i].axis[d], wanted.axis[d]))
            return std::nullopt;
      }
      if (!ok)
        return std::nullopt;
    }
    Shorter s;
    s.rows = t.rows;
    s.factors = t.inner;
    s.depth = t.depth;
    s.mixture.base = sum;
    for (std::size_t i = 0; i < graph_[term].shape.size(); ++i) {
      const auto it = same.find(int(i));
      if (it == same.end() && !is_unit(graph_[term].shape[i]))
        return std::nullopt;
      const int axis = it == same.end() ? -1 : it->second;
      if (summed.contains(int(i)) != (axis >= 0 && t.summed.contains(axis)) && axis >= 0)
        return std::nullopt;
      if (!summed.contains(int(i)))
        s.mixture.axis.push_back(axis);
    }
    for (int p : t.summed) // all summed of the one are summed of the other
      if (std::none_of(same.begin(), same.end(), [&](const auto& m) { return m.second == p; }))
        return std::nullopt;
    for (Leaf& l : rows) { // the mixture was divided already
      for (int& a : l.axis)
        if (a >= 0) {
          const auto it = same.find(a);
          if (it == same.end())
            return std::nullopt;
          a = it->second;
        }
      const auto at = std::find(s.rows.begin(), s.rows.end(), l);
      if (at == s.rows.end())
        return std::nullopt;
      s.rows.erase(at);
    }
    return s;
  }

  // --- The new graph

  std::vector<NodeId> needs(NodeId id) const {
    const auto it = found_.find(id);
    if (it == found_.end())
      return graph_[id].inputs;
    std::vector<NodeId> bases{it->second.mixture.base};
    for (const auto* leaves : {&it->second.rows, &it->second.factors})
      for (const Leaf& l : *leaves)
        bases.push_back(l.base);
    return bases;
  }

  /// What a node needs comes before it, which the order of the old graph may not.
  void copy(NodeId root) {
    std::vector<NodeId> waiting{root};
    while (!waiting.empty()) {
      const NodeId id = waiting.back();
      const std::size_t before = waiting.size();
      if (to_[id] == ir::kNoNode)
        for (NodeId need : needs(id))
          if (to_[need] == ir::kNoNode)
            waiting.push_back(need);
      if (waiting.size() > before)
        continue;
      waiting.pop_back();
      if (to_[id] != ir::kNoNode)
        continue;
      if (const auto it = found_.find(id); it != found_.end()) {
        to_[id] = shorter_sum(id, it->second);
        continue;
      }
      std::vector<NodeId> inputs;
      for (NodeId i : graph_[id].inputs)
        inputs.push_back(to_[i]);
      to_[id] = out_.add(graph_[id].op, inputs, graph_[id].attrs);
    }
  }

  /// A leaf over a box of some of the axes.
  NodeId at_box(const Leaf& l, const std::vector<int>& axes, const Shape& box) {
    std::vector<std::pair<int, std::int64_t>> dims; // place in the box, dim of the base
    for (std::size_t d = 0; d < l.axis.size(); ++d) {
      const auto at = std::find(axes.begin(), axes.end(), l.axis[d]);
      dims.push_back({l.axis[d] < 0 ? -1 : int(at - axes.begin()), std::int64_t(d)});
    }
    std::sort(dims.begin(), dims.end());
    std::vector<std::int64_t> order;
    Shape spread(box.size(), Expr(1));
    for (const auto& [place, dim] : dims) {
      order.push_back(dim);
      if (place >= 0)
        spread[std::size_t(place)] = box[std::size_t(place)];
    }
    return out_.expand(out_.reshape(out_.permute(to_[l.base], order), spread), box);
  }

  NodeId shorter_sum(NodeId id, const Shorter& s) {
    const std::set<int> summed = summed_axes(graph_[id]);
    const Shape& frame = graph_[graph_[id].inputs[0]].shape;
    std::vector<int> axes;
    Shape rows, box;
    for (std::size_t i = 0; i < frame.size(); ++i)
      if (!summed.contains(int(i))) {
        axes.push_back(int(i));
        rows.push_back(frame[i]);
      }
    box = rows;
    std::vector<std::int64_t> over;
    for (const auto& [axis, extent] : s.depth) {
      axes.push_back(axis);
      over.push_back(std::int64_t(box.size()));
      box.push_back(extent);
    }
    NodeId product = at_box(s.mixture, axes, box);
    for (const Leaf& l : s.factors)
      product = out_.binary(Op::Mul, product, at_box(l, axes, box));
    NodeId result = out_.reduce(Op::ReduceSum, product, over);
    for (const Leaf& l : s.rows)
      result = out_.binary(l.divides ? Op::Div : Op::Mul, result, at_box(l, axes, rows));
    return result;
  }

  const Graph& graph_;
  GraphFacts facts_;
  FactorReader read_;
  std::vector<NodeId> sums_;
  std::map<NodeId, Shorter> found_;
  Graph out_;
  std::vector<NodeId> to_;
};

} // namespace

Graph with_attention_delta(const Graph& graph) {
  return Shortener(graph).run();
}

} // namespace egret::compiler
