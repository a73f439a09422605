#include "compiler/own_maxima.h"

#include "compiler/factors.h"
#include "compiler/views.h"
#include "ir/structure.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// exp(x - M).
struct Exponential {
  NodeId x = ir::kNoNode, whole = ir::kNoNode; ///< M
  NodeId own = ir::kNoNode;                    ///< m, of M's shape
  std::vector<NodeId> path;                    ///< from -M in x's box down to M, M left out
};

/// A value of the rows that a sum is multiplied or divided by.
struct RowFactor {
  NodeId value; ///< in the new graph, in the box of what is at hand
  bool divides = false;
};

/// What is left of a value without its row factors.
struct Rest {
  NodeId value = ir::kNoNode; ///< in the new graph
  NodeId whole = ir::kNoNode; ///< M
  std::set<int> along;        ///< dims that m is the maximum over
  std::vector<RowFactor> rows;
  NodeId none = ir::kNoNode; ///< in the same box: whether m is -inf and M is not
  bool at_most_one = false;
};

class OwnMaxima {
public:
  explicit OwnMaxima(const Graph& graph)
      : graph_(graph), facts_(graph), read_(facts_), to_(graph.size(), ir::kNoNode),
        depth_(graph.size(), 0) {
    for (NodeId id = 0; id < graph.size(); ++id)
      depth_[id] = depth_of(id);
  }

  Graph run() {
    bool any = false;
    Graph made = ir::rebuild(graph_, [&](Graph& out, NodeId id, std::span<const NodeId> operands) {
      if (out_ == nullptr)
        for (std::size_t slot = 0; slot < graph_.inputs().size(); ++slot)
          to_[graph_.inputs()[slot]] = out.inputs()[slot];
      out_ = &out;
      const Node& node = graph_[id];
      if (is_sum(node) && depth_[node.inputs[0]] > 0)
        if (const auto rest = rest_of(node.inputs[0]); rest && sums_along(node, *rest)) {
          any = true;
          return to_[id] = scaled_sum(node, *rest);
        }
      return to_[id] = out.add(node.op, operands, node.attrs);
    });
    return any ? ir::without_dead_code(made) : graph_;
  }

private:
  // --- exp(x - M)

  std::optional<Exponential> exponential(NodeId id) const {
    const Node& exp = graph_[id];
    if (exp.op != Op::Exp || exp.dtype != DType::F32)
      return std::nullopt;
    const Node& add = graph_[exp.inputs[0]];
    if (add.op != Op::Add)
      return std::nullopt;
    for (const std::size_t k : {0u, 1u})
      if (auto found = shifted(add.inputs[1 - k], add.inputs[k]))
        return found;
    return std::nullopt;
  }

  std::optional<Exponential> shifted(NodeId x, NodeId minus) const {
    auto rows = read_.minus_of_rows(minus);
    if (!rows || graph_[rows->base].op != Op::Max || !is_made_of_large_products(facts_, x))
      return std::nullopt;
    if (const auto own = own_maximum(rows->base, x, rows->map))
      return Exponential{x, rows->base, *own, std::move(rows->path)};
    return std::nullopt;
  }

  /// The operand of a tree of maxima that is x's largest of the same row, by the map from x's box.
  std::optional<NodeId> own_maximum(NodeId id, NodeId x, const IndexMap& map) const {
    for (const NodeId input : graph_[id].inputs) {
      NodeId base = input;
      IndexMap through = map;
      while (is_movement(graph_[base].op) || graph_[base].op == Op::StopGradient) {
        if (is_movement(graph_[base].op))
          through = compose(through, ir::view_of(graph_, base));
        base = graph_[base].inputs[0];
      }
      const Node& node = graph_[base];
      if (node.op == Op::ReduceMax && read_.is_own_row(base, x, through))
        return input;
      if (input == base && node.op == Op::Max)
        if (const auto own = own_maximum(input, x, map))
          return own;
    }
    return std::nullopt;
  }

  /// From a value down to the exponential that it is made of by what rest_of() looks through: how
  /// many nodes; 0 where there is none, or too many.
  int depth_of(NodeId id) const {
    const Node& node = graph_[id];
    int below = 0;
    if (is_movement(node.op) || node.op == Op::Cast || node.op == Op::Div)
      below = depth_[node.inputs[0]];
    else if (node.op == Op::Mul)
      below = std::max(depth_[node.inputs[0]], depth_[node.inputs[1]]);
    else
      return exponential(id).has_value() ? 1 : 0;
    return below > 0 && below < kDeepest ? below + 1 : 0;
  }

  // --- Without the factors of rows

  std::optional<Rest> rest_of(NodeId id) {
    const Node& node = graph_[id];
    if (is_movement(node.op))
      return moved(id);
    switch (node.op) {
    case Op::Exp:
      return own_exponential(id);
    case Op::Cast:
      return cast(node);
    case Op::Mul: {
      const std::size_t k = depth_[node.inputs[0]] > 0 ? 0 : 1;
      auto rest = rest_of(node.inputs[k]);
      if (!rest || needs(node.inputs[1 - k], rest->whole))
        return std::nullopt;
      rest->value = out_->binary(Op::Mul, rest->value, to_[node.inputs[1 - k]]);
      rest->at_most_one = false;
      return rest;
    }
    case Op::Div: {
      auto rest = rest_of(node.inputs[0]);
      if (!rest)
        return std::nullopt;
      if (!needs(node.inputs[1], rest->whole)) {
        rest->value = out_->binary(Op::Div, rest->value, to_[node.inputs[1]]);
        rest->at_most_one = false;
        return rest;
      }
      const auto& varies = facts_.depends(node.inputs[1]);
      if (std::ranges::any_of(rest->along, [&](int a) { return varies[std::size_t(a)]; }) ||
          !is_total_of(facts_.view(node.inputs[1]).base, rest->whole))
        return std::nullopt;
      rest->rows.push_back({to_[node.inputs[1]], true});
      return rest;
    }
    default:
      return std::nullopt;
    }
  }

  std::optional<Rest> own_exponential(NodeId id) {
    const auto e = exponential(id);
    if (!e)
      return std::nullopt;
    Rest rest;
    rest.whole = e->whole;
    rest.at_most_one = true;
    const NodeId m = to_[e->own], whole = to_[e->whole];
    const NodeId minus = along_path(*e, m, true);
    rest.value = out_->unary(Op::Exp, out_->binary(Op::Add, to_[e->x], minus));
    const Shape shape = graph_[e->whole].shape;
    const auto all = [&](double number) {
      return out_->broadcast(out_->constant(DType::F32, number), shape);
    };
    const NodeId change = out_->binary(Op::Add, m, out_->binary(Op::Mul, whole, all(-1)));
    rest.rows.push_back({along_path(*e, out_->unary(Op::Exp, change), false)});
    const NodeId lowest = all(-std::numeric_limits<double>::infinity());
    const NodeId none =
        out_->binary(Op::And, out_->binary(Op::Eq, m, lowest), out_->binary(Op::Lt, lowest, whole));
    rest.none = along_path(*e, none, false);
    const auto& varies = facts_.depends(e->path.empty() ? e->whole : e->path.front());
    const Shape& box = graph_[id].shape;
    for (std::size_t d = 0; d < box.size(); ++d)
      if (!is_unit(box[d]) && !varies[d])
        rest.along.insert(int(d));
    return rest;
  }

  /// A value of M's shape in x's box, as M is read there.
  NodeId along_path(const Exponential& e, NodeId value, bool negative) {
    for (std::size_t i = e.path.size(); i-- > 0;) {
      const Node& node = graph_[e.path[i]];
      if (node.op == Op::Mul)
        value = negative ? out_->binary(Op::Mul, value,
                                        to_[node.inputs[std::size_t(read_.minus_one_of(node))]])
                         : value;
      else if (is_movement(node.op))
        value = out_->add(node.op, std::vector{value}, node.attrs);
    }
    return value;
  }

  std::optional<Rest> moved(NodeId id) {
    const Node& node = graph_[id];
    if (node.op != Op::Permute && node.op != Op::Reshape && node.op != Op::Expand)
      return std::nullopt;
    auto rest = rest_of(node.inputs[0]);
    if (!rest)
      return std::nullopt;
    const IndexMap map = ir::view_of(graph_, id);
    std::set<int> along;
    for (const int a : rest->along) {
      const int at = plain_axis(map.coords[std::size_t(a)]);
      if (at < 0 || !(node.shape[std::size_t(at)] == graph_[node.inputs[0]].shape[std::size_t(a)]))
        return std::nullopt;
      along.insert(at);
    }
    rest->along = std::move(along);
    const auto move = [&](NodeId value) {
      return out_->add(node.op, std::vector{value}, node.attrs);
    };
    rest->value = move(rest->value);
    rest->none = move(rest->none);
    for (RowFactor& row : rest->rows)
      row.value = move(row.value);
    return rest;
  }

  std::optional<Rest> cast(const Node& node) {
    const auto narrow = [](DType type) { return type == DType::BF16 || type == DType::F16; };
    auto rest = rest_of(node.inputs[0]);
    const DType from = graph_[node.inputs[0]].dtype;
    const bool rounds = from == DType::F32 && narrow(node.dtype) && rest && rest->at_most_one;
    if (!rest || !(rounds || (narrow(from) && node.dtype == DType::F32)))
      return std::nullopt;
    rest->value = out_->cast(rest->value, node.dtype);
    return rest;
  }

  bool needs(NodeId id, NodeId whole) {
    auto& needs = needs_[whole];
    if (needs.empty()) {
      needs.assign(graph_.size(), false);
      needs[whole] = true;
      for (NodeId n = whole + 1; n < graph_.size(); ++n)
        needs[n] =
            std::ranges::any_of(graph_[n].inputs, [&](NodeId input) { return needs[input]; });
    }
    return needs[id];
  }

  /// Whether a value adds up exponentials, sums of exp(x - M) among them: it is no less than each
  /// of these.
  bool is_total_of(NodeId id, NodeId whole) const {
    std::vector<NodeId> waiting{id};
    bool found = false;
    for (int seen = 0; !waiting.empty(); ++seen) {
      const NodeId base = facts_.view(waiting.back()).base;
      waiting.pop_back();
      const Node& node = graph_[base];
      if (seen > kMostAddends)
        return false;
      if (node.op == Op::Add) {
        waiting.insert(waiting.end(), node.inputs.begin(), node.inputs.end());
      } else if (is_sum(node)) {
        if (graph_[node.inputs[0]].op != Op::Exp)
          return false;
        const auto e = exponential(node.inputs[0]);
        found = found || (e && e->whole == whole);
      } else if (node.op != Op::Exp) {
        return false;
      }
    }
    return found;
  }

  // --- The sum

  bool sums_along(const Node& sum, const Rest& rest) const {
    std::set<int> over = summed_axes(sum);
    const Shape& box = graph_[sum.inputs[0]].shape;
    std::erase_if(over, [&](int a) { return is_unit(box[std::size_t(a)]); });
    return !over.empty() && over == rest.along;
  }

  NodeId scaled_sum(const Node& sum, const Rest& rest) {
    const Shape& box = graph_[sum.inputs[0]].shape;
    const std::set<int> over = summed_axes(sum);
    const auto of_row = [&](NodeId value) {
      std::vector<Expr> begin(box.size(), Expr(0)), end = box;
      for (const int a : over)
        end[std::size_t(a)] = Expr(1);
      return out_->reshape(out_->shrink(value, begin, end), sum.shape);
    };
    NodeId result = out_->reduce(sum.op, rest.value, sum.attrs.axes);
    for (const RowFactor& row : rest.rows)
      result = out_->binary(row.divides ? Op::Div : Op::Mul, result, of_row(row.value));
    const NodeId zero = out_->broadcast(out_->constant(DType::F32, 0.0), sum.shape);
    return out_->select(of_row(rest.none), zero, result);
  }

  static constexpr int kMostAddends = 16, kDeepest = 64;

  const Graph& graph_;
  GraphFacts facts_;
  FactorReader read_;
  Graph* out_ = nullptr; ///< while it is made
  std::vector<NodeId> to_;
  std::vector<int> depth_;
  std::map<NodeId, std::vector<bool>> needs_; ///< by M
};

} // namespace

Graph with_own_maxima(const Graph& graph) {
  const auto is_largest = [&](NodeId id) {
    while (is_movement(graph[id].op) || graph[id].op == Op::StopGradient)
      id = graph[id].inputs[0];
    return graph[id].op == Op::ReduceMax;
  };
  for (NodeId id = 0; id < graph.size(); ++id)
    if (graph[id].op == Op::Max && std::ranges::any_of(graph[id].inputs, is_largest))
      return OwnMaxima(graph).run();
  return graph;
}

} // namespace egret::compiler
