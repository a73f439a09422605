#include "compiler/unrolled_products.h"

#include "compiler/views.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// Of products that are joined: at the least, and terms of one at the most. A larger product takes
/// longer than its launch, and keeps what follows it in its kernel.
constexpr std::size_t kFewestProducts = 4;
constexpr std::int64_t kMostTerms = 1 << 24;

/// A sum of products of which one factor is a slice, moved.
struct SliceProduct {
  NodeId sum = 0;
  int side = 0;              ///< of the product: the factor
  NodeId slice = 0;          ///< a Shrink to one index along `axis`
  std::vector<NodeId> moves; ///< of the slice, to the factor
  std::int64_t axis = 0, index = 0;
};

struct JoinedProduct {
  std::vector<SliceProduct> all; ///< by index
  std::int64_t begin() const { return all.front().index; }
  std::int64_t count() const { return all.back().index + 1 - begin(); }
};

bool is_full(const Expr& begin, const Expr& end, const Expr& extent) {
  return begin == Expr(0) && end == extent;
}

class ProductFinder {
public:
  explicit ProductFinder(const Graph& graph) : graph_(graph), facts_(graph) {}

  std::vector<JoinedProduct> run() const {
    std::map<std::string, std::vector<SliceProduct>> alike;
    for (NodeId id = 0; id < graph_.size(); ++id)
      for (const int side : {0, 1})
        if (const auto product = product_of(id, side)) {
          alike[text_of(*product)].push_back(*product);
          break;
        }
    std::vector<JoinedProduct> found;
    for (auto& [text, all] : alike) {
      std::sort(all.begin(), all.end(),
                [](const SliceProduct& a, const SliceProduct& b) { return a.index < b.index; });
      JoinedProduct joined{all};
      if (all.size() >= kFewestProducts &&
          joined.count() <= 2 * static_cast<std::int64_t>(all.size()) && follow_each_other(all))
        found.push_back(std::move(joined));
    }
    return found;
  }

private:
  std::optional<SliceProduct> product_of(NodeId sum, int side) const {
    const Node& node = graph_[sum];
    if (node.op != Op::ReduceSum || facts_.product_of(sum) != node.inputs[0])
      return std::nullopt;
    const Node& product = graph_[node.inputs[0]];
    const Expr terms = element_count(product.shape);
    if (!terms.is_constant() || terms.value() > kMostTerms)
      return std::nullopt;
    SliceProduct found;
    found.sum = sum;
    found.side = side;
    NodeId at = product.inputs[static_cast<std::size_t>(side)];
    for (; graph_[at].op == Op::Reshape || graph_[at].op == Op::Permute ||
           graph_[at].op == Op::Expand;
         at = graph_[at].inputs[0])
      found.moves.push_back(at);
    std::reverse(found.moves.begin(), found.moves.end());
    if (graph_[at].op != Op::Shrink)
      return std::nullopt;
    found.slice = at;
    const Node& slice = graph_[at];
    const Shape& whole = graph_[slice.inputs[0]].shape;
    bool one = false;
    for (std::size_t d = 0; d < whole.size(); ++d) {
      const Expr &begin = slice.attrs.before[d], &end = slice.attrs.shape[d];
      if (is_full(begin, end, whole[d]))
        continue;
      if (one || !begin.is_constant() || !(end - begin == Expr(1)) || !whole[d].is_constant())
        return std::nullopt;
      one = true;
      found.axis = static_cast<std::int64_t>(d);
      found.index = begin.value();
    }
    return one ? std::optional(found) : std::nullopt;
  }

  /// The same of products that differ in the index of their slice alone.
  std::string text_of(const SliceProduct& p) const {
    const Node &sum = graph_[p.sum], &product = graph_[sum.inputs[0]];
    std::string text =
        fmt::format("{} {} {} axis {} of {} axes {}:", name_of(sum.dtype), name_of(product.dtype),
                    p.side, p.axis, graph_[p.slice].inputs[0], fmt::join(sum.attrs.axes, " "));
    text += fmt::format(" {}", product.inputs[static_cast<std::size_t>(1 - p.side)]);
    for (const NodeId id : p.moves) {
      text += fmt::format("; {} {}", info_of(graph_[id].op).name,
                          fmt::join(graph_[id].attrs.axes, " "));
      for (const Expr& e : graph_[id].shape)
        text += " " + e.str();
    }
    return text;
  }

  /// Whether what reads the last one, or the first one, depends on the other.
  bool follow_each_other(const std::vector<SliceProduct>& all) const {
    return reads_what_follows(all.back().sum, all.front().sum) ||
           reads_what_follows(all.front().sum, all.back().sum);
  }
  bool reads_what_follows(NodeId read, NodeId before) const {
    std::vector<bool> follows(graph_.size(), false), reads(graph_.size(), false);
    follows[before] = reads[read] = true;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_[id];
      const auto any = [&](const std::vector<bool>& of) {
        return std::any_of(node.inputs.begin(), node.inputs.end(),
                           [&](NodeId i) -> bool { return of[i]; });
      };
      follows[id] = follows[id] || any(follows);
      const bool through = is_elementwise(node.op) ||
                           (info_of(node.op).cls == OpClass::Movement && node.op != Op::Pad);
      reads[id] = reads[id] || (through && any(reads));
      if (follows[id] && reads[id] && is_elementwise(node.op))
        return true;
    }
    return false;
  }

  const Graph& graph_;
  GraphFacts facts_;
};

class ProductJoiner {
public:
  explicit ProductJoiner(const Graph& graph) : graph_(graph), to_(graph.size()) {}

  Graph run() {
    const std::vector<JoinedProduct> found = ProductFinder(graph_).run();
    if (found.empty())
      return graph_;
    std::map<NodeId, std::pair<const JoinedProduct*, const SliceProduct*>> joined;
    for (const JoinedProduct& j : found)
      for (const SliceProduct& p : j.all)
        joined.emplace(p.sum, std::pair(&j, &p));
    std::map<const JoinedProduct*, NodeId> made;
    for (NodeId id : graph_.inputs()) // in their slots
      to_[id] = out_.add(Op::Input, {}, graph_[id].attrs);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_[id];
      if (node.op == Op::Input)
        continue;
      const auto it = joined.find(id);
      if (it == joined.end()) {
        std::vector<NodeId> inputs;
        for (const NodeId i : node.inputs)
          inputs.push_back(to_[i]);
        to_[id] = out_.add(node.op, inputs, node.attrs);
        continue;
      }
      const auto [product, slice] = it->second;
      const auto [whole, fresh] = made.try_emplace(product, 0);
      if (fresh) // what it reads is read by each of its slices
        whole->second = make(*product);
      to_[id] = slice_of(whole->second, slice->index - product->begin(), node.shape);
    }
    for (const NodeId id : graph_.outputs)
      out_.outputs.push_back(to_[id]);
    return ir::without_dead_code(out_);
  }

private:
  static Shape with_front(const Expr& extent, const Shape& shape) {
    Shape all{extent};
    all.insert(all.end(), shape.begin(), shape.end());
    return all;
  }

  /// The product with an axis of the slices in front.
  NodeId make(const JoinedProduct& joined) {
    const SliceProduct& one = joined.all.front();
    const Expr count(joined.count());
    const Node &slice = graph_[one.slice], &sum = graph_[one.sum], &product = graph_[sum.inputs[0]];
    std::vector<Expr> begin = slice.attrs.before, end = slice.attrs.shape;
    const auto axis = static_cast<std::size_t>(one.axis);
    end[axis] = begin[axis] + count;
    std::vector<std::int64_t> order{one.axis};
    for (std::int64_t d = 0; d < static_cast<std::int64_t>(begin.size()); ++d)
      if (d != one.axis)
        order.push_back(d);
    NodeId moved = out_.reshape(out_.permute(out_.shrink(to_[slice.inputs[0]], begin, end), order),
                                with_front(count, slice.shape));
    for (const NodeId id : one.moves) {
      const Node& move = graph_[id];
      if (move.op == Op::Reshape) {
        moved = out_.reshape(moved, with_front(count, move.shape));
      } else if (move.op == Op::Expand) {
        moved = out_.expand(moved, with_front(count, move.shape));
      } else {
        std::vector<std::int64_t> axes{0};
        for (const std::int64_t a : move.attrs.axes)
          axes.push_back(a + 1);
        moved = out_.permute(moved, axes);
      }
    }
    const NodeId other = to_[product.inputs[static_cast<std::size_t>(1 - one.side)]];
    const NodeId repeated = out_.expand(out_.reshape(other, with_front(Expr(1), product.shape)),
                                        with_front(count, product.shape));
    const NodeId factors[] = {one.side == 0 ? moved : repeated, one.side == 0 ? repeated : moved};
    const NodeId terms = out_.add(Op::Mul, factors, product.attrs);
    ir::Attrs attrs = sum.attrs;
    for (std::int64_t& a : attrs.axes)
      ++a;
    return out_.add(Op::ReduceSum, std::span(&terms, 1), attrs);
  }

  NodeId slice_of(NodeId whole, std::int64_t index, const Shape& shape) {
    const Shape& all = out_[whole].shape;
    std::vector<Expr> begin(all.size(), Expr(0)), end(all.begin(), all.end());
    begin[0] = Expr(index);
    end[0] = Expr(index + 1);
    return out_.reshape(out_.shrink(whole, begin, end), shape);
  }

  const Graph& graph_;
  Graph out_;
  std::vector<NodeId> to_;
};

} // namespace

Graph join_unrolled_products(const Graph& graph) {
  return ProductJoiner(graph).run();
}

} // namespace egret::compiler
