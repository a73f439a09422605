#include "compiler/axis_orders.h"

#include "compiler/labels.h"
#include "compiler/views.h"
#include "egret/passes.h"

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

constexpr int kNoLabel = -1;
// Votes for an innermost axis, by byte of the value.
constexpr double kOfReduction = 1, kOfSeveralAxes = 0.1, kOfFixedOrder = 1, kOfReader = 1,
                 kOfWindows = 0.5, kOfConvolution = 1;
/// Elements beside each other that make an innermost axis, at the least.
constexpr std::int64_t kLeastRow = 16;

bool is_reduction(const Node& node) {
  return info_of(node.op).cls == OpClass::Reduce;
}

/// By node: its dims in the order in which it is computed; empty: as they are.
using Orders = std::vector<std::vector<std::int64_t>>;

class OrderFinder {
public:
  OrderFinder(const Graph& graph, const kernel::Target& target, double least_elements)
      : graph_(graph), facts_(graph), least_elements_(least_elements),
        copied_bytes_(target.vector_bytes), axes_(graph.size()), value_(graph.size()),
        weights_(graph.size()) {}

  Orders run() {
    for (NodeId id = 0; id < graph_.size(); ++id)
      weights_[id] = is_weight(id);
    label_axes();
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (is_free(id))
        members_[values_.find(value_[id])].push_back(id);
    for (NodeId id = 0; id < graph_.size(); ++id)
      vote(id);
    for (const NodeId id : graph_.outputs)
      vote_of_output(id);
    decide();
    Orders orders(graph_.size());
    for (const auto& [value, order] : orders_)
      for (const NodeId id : members_.at(value))
        orders[id] = dims_in(order, id);
    return orders;
  }

private:
  using Votes = std::map<int, std::map<int, double>>; ///< by value and label

  /// What may be computed in any order.
  bool is_free(NodeId id) const {
    const Node& node = graph_[id];
    return is_elementwise(node.op) || is_reduction(node);
  }

  double bytes_of(NodeId id) const {
    return elements_of(graph_[id].shape) * double(size_of(graph_[id].dtype));
  }

  // Labels: what is the same axis in several values has the same one.

  void label_axes() {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_[id];
      if (is_movement(node.op))
        continue;
      value_[id] = values_.make();
      for (const Expr& extent : node.shape)
        axes_[id].push_back(is_unit(extent) ? kNoLabel : labels_.make());
      if (is_elementwise(node.op)) {
        for (const NodeId input : node.inputs)
          if (link(input, axes_[id]))
            values_.join(value_[id], value_[facts_.view(input).base]);
      } else if (is_reduction(node)) {
        link(node.inputs[0], box_of(id));
      }
    }
  }

  /// Labels of the box that a reduction reads; of what it sums new ones.
  std::vector<int> box_of(NodeId reduction) {
    const Node& node = graph_[reduction];
    const Shape& shape = graph_[node.inputs[0]].shape;
    std::vector<int> box;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (is_summed(node, i))
        box.push_back(is_unit(shape[i]) ? kNoLabel : labels_.make());
      else
        box.push_back(axes_[reduction][kept++]);
    return box;
  }

  static bool is_summed(const Node& reduction, std::size_t axis) {
    const auto& axes = reduction.attrs.axes;
    return std::find(axes.begin(), axes.end(), std::int64_t(axis)) != axes.end();
  }

  /// The axis of the box along which a dim of the operand's base lies, all of it; -1: none.
  int axis_of(NodeId operand, std::size_t dim) const {
    const View& view = facts_.view(operand);
    const Expr& extent = graph_[view.base].shape[dim];
    const int axis = plain_axis(view.map.coords[dim]);
    return axis >= 0 && !is_unit(extent) && graph_[operand].shape[std::size_t(axis)] == extent
               ? axis
               : -1;
  }

  /// Notes which axes of a value are those of the box in which it is read; whether that is all of
  /// both, in some order.
  bool link(NodeId operand, const std::vector<int>& box) {
    const View& view = facts_.view(operand);
    const NodeId base = view.base;
    std::set<int> seen;
    bool all = view.map.is_total();
    for (std::size_t dim = 0; dim < graph_[base].shape.size(); ++dim) {
      if (is_unit(graph_[base].shape[dim]))
        continue;
      const int axis = axis_of(operand, dim);
      if (axis < 0 || !seen.insert(axis).second) {
        all = false;
        continue;
      }
      labels_.join(axes_[base][dim], box[std::size_t(axis)]);
    }
    const auto wide = std::count_if(box.begin(), box.end(), [](int l) { return l != kNoLabel; });
    return all && std::ptrdiff_t(seen.size()) == wide;
  }

  int label(NodeId id, std::size_t dim) const {
    const int l = axes_[id][dim];
    return l == kNoLabel ? kNoLabel : labels_.find(l);
  }

  /// The labels of a value, the outermost axis first.
  std::vector<int> labels_of(NodeId id) const {
    std::vector<int> result;
    for (std::size_t dim = 0; dim < axes_[id].size(); ++dim)
      if (const int l = label(id, dim); l != kNoLabel)
        result.push_back(l);
    return result;
  }

  // Votes.

  /// For a dim of the value.
  void add_vote(NodeId id, std::size_t dim, double weight) {
    if (graph_[id].shape[dim].lower() >= kLeastRow)
      votes_[values_.find(value_[id])][label(id, dim)] += weight * bytes_of(id);
  }

  void vote_for_own_order(NodeId id) {
    for (std::size_t dim = axes_[id].size(); dim-- > 0;)
      if (label(id, dim) != kNoLabel)
        return add_vote(id, dim, kOfFixedOrder);
  }

  void vote(NodeId id) {
    const Node& node = graph_[id];
    if (is_movement(node.op))
      return;
    if (!is_free(id)) {
      vote_for_own_order(id); // of those that are joined with it
      for (const NodeId input : node.inputs)
        vote_for_own_order(facts_.view(input).base);
      return;
    }
    if (is_reduction(node))
      facts_.product_of(id) == ir::kNoNode ? vote_of_reduction(id) : vote_of_product(id);
    if (is_elementwise(node.op) && !facts_.is_product(id))
      for (const NodeId input : node.inputs)
        vote_of_reader(input, id);
  }

  /// What is computed from slices of a value, or with axes of it joined, goes along its
  /// own last axis.
  void vote_of_reader(NodeId operand, NodeId reader) {
    const View& view = facts_.view(operand);
    const Shape& box = graph_[reader].shape;
    if (box.empty() || has_windows(operand) || !is_free(view.base) ||
        values_.find(value_[view.base]) == values_.find(value_[reader]))
      return;
    const Expr last = Expr::axis(int(box.size()) - 1, box.back());
    for (std::size_t dim = 0; dim < view.map.coords.size(); ++dim) {
      if (!goes_along(view.map.coords[dim], last))
        continue;
      add_vote(view.base, dim, kOfReader);
      read_.insert(values_.find(value_[view.base]));
    }
  }

  /// Whether a coordinate is the variable, or its last digit, but for an offset.
  static bool goes_along(const Expr& at, const Expr& variable) {
    if (!variable.is_axis())
      return false;
    const ExprNode& node = at.node();
    if (node.kind == ExprKind::FloorMod)
      return node.operands[0] == variable && node.operands[1].lower() >= kLeastRow;
    return coefficient_of(at, variable) == Expr(1);
  }

  bool has_windows(NodeId operand) const {
    const auto& coords = facts_.view(operand).map.coords;
    return std::any_of(coords.begin(), coords.end(),
                       [](const Expr& at) { return variables_of(at).size() > 1; });
  }

  /// Whether of an axis that a view splits some digits are summed and some are kept.
  bool sums_parts_of_axes(NodeId operand, const Node& reduction) const {
    return std::ranges::any_of(facts_.view(operand).map.coords, [&](const Expr& at) {
      const std::set<int> axes = axes_of(at);
      const auto summed = std::ranges::count_if(
          axes, [&](int axis) { return is_summed(reduction, std::size_t(axis)); });
      return summed > 0 && summed < std::ptrdiff_t(axes.size());
    });
  }

  /// Whether a view has each element of its base once.
  bool reads_each_once(NodeId operand) const {
    const View& view = facts_.view(operand);
    return view.map.is_total() &&
           elements_of(graph_[operand].shape) == elements_of(graph_[view.base].shape);
  }

  void vote_of_reduction(NodeId id) {
    const Node& node = graph_[id];
    const NodeId operand = node.inputs[0], base = facts_.view(operand).base;
    // Groups of an axis, as those of channels, are no rows: of the others the last one is.
    const bool groups =
        has_windows(operand) && reads_each_once(operand) && sums_parts_of_axes(operand, node);
    if (has_windows(operand) && !groups) {
      windows_.emplace_back(base, id);
      return;
    }
    for (const NodeId factor : graph_[base].inputs) // of a depthwise convolution
      if (is_elementwise(graph_[base].op) && has_windows(factor))
        windows_.emplace_back(facts_.view(factor).base, id);
    std::vector<std::size_t> summed;
    for (std::size_t dim = 0; dim < graph_[base].shape.size(); ++dim)
      if (const int axis = axis_of(operand, dim); axis >= 0 && is_summed(node, std::size_t(axis)))
        summed.push_back(dim);
    if (!summed.empty())
      add_vote(base, summed.back(), summed.size() == 1 || groups ? kOfReduction : kOfSeveralAxes);
  }

  /// A sum of products over windows of a factor (a convolution) reads them best where what it sums
  /// beside the windows lies along memory, and stores its results so for the next one. By 16 bits:
  /// units multiply those as they lie, others on their way through registers.
  void vote_of_product(NodeId id) {
    const NodeId product = facts_.product_of(id);
    for (const NodeId factor : graph_[product].inputs) {
      const NodeId base = facts_.view(factor).base;
      if (stored_bytes(base) != 2)
        continue;
      if (!has_windows(factor)) {
        vote_for_alignment(factor, id);
        if (!weights_[base])
          products_.emplace_back(factor, id);
      }
      if (!sums_windows(factor, graph_[id]))
        continue;
      const Sides sides = sides_of(factor, id);
      if (is_free(base))
        for (const std::size_t dim : sides.depths)
          ask(base, dim);
      for (const std::size_t dim : sides.widths)
        ask(id, dim);
    }
  }

  void ask(NodeId id, std::size_t dim) {
    add_vote(id, dim, kOfConvolution);
    read_.insert(values_.find(value_[id]));
  }

  /// Of a factor and the product's sums: dims of the factor's base that are summed, and of the sums
  /// those that the other factor alone has.
  struct Sides {
    std::vector<std::size_t> depths, widths;
  };

  Sides sides_of(NodeId factor, NodeId sum) const {
    const NodeId base = facts_.view(factor).base, product = facts_.product_of(sum);
    Sides sides;
    std::set<int> of_factor; // axes of the box
    for (std::size_t dim = 0; dim < graph_[base].shape.size(); ++dim) {
      of_factor.merge(axes_of(facts_.view(factor).map.coords[dim]));
      if (const int axis = axis_of(factor, dim);
          axis >= 0 && is_summed(graph_[sum], std::size_t(axis)))
        sides.depths.push_back(dim);
    }
    std::size_t kept = 0;
    for (std::size_t axis = 0; axis < graph_[product].shape.size(); ++axis) {
      if (is_summed(graph_[sum], axis))
        continue;
      if (!of_factor.contains(int(axis)) && !is_unit(graph_[product].shape[axis]))
        sides.widths.push_back(kept);
      ++kept;
    }
    return sides;
  }

  /// Rows of a factor that do not begin at multiples of what is copied at once are copied to where
  /// they do. What lies around them votes for itself if rows of it would.
  void vote_for_alignment(NodeId factor, NodeId sum) {
    struct Run { // neighbours that are both summed, or both not: one axis of the product
      std::size_t last;
      bool summed;
      double elements;
    };
    const NodeId base = facts_.view(factor).base;
    std::vector<Run> runs; // the innermost first
    for (std::size_t dim = graph_[base].shape.size(); dim-- > 0;) {
      const Expr& extent = graph_[base].shape[dim];
      if (is_unit(extent))
        continue;
      const int axis = axis_of(factor, dim);
      if (axis < 0)
        return;
      const bool summed = is_summed(graph_[sum], std::size_t(axis));
      if (runs.empty() || runs.back().summed != summed)
        runs.push_back({dim, summed, 1});
      runs.back().elements *= elements_of({extent});
    }
    if (is_free(base) && runs.size() > 1 && !is_aligned(runs[0].elements) &&
        is_aligned(runs[1].elements))
      ask(base, runs[1].last);
  }

  /// Whether a row of 16-bit elements is a multiple of what is copied at once.
  bool is_aligned(double row) const { return std::fmod(row, double(copied_bytes_) / 2) == 0; }

  /// Whether a value is computed element by element from inputs of the graph alone, as a weight in
  /// fewer bits is.
  bool is_weight(NodeId id) const {
    const Node& node = graph_[id];
    return node.op == Op::Input || node.op == Op::Constant ||
           (is_elementwise(node.op) && std::ranges::all_of(node.inputs, [&](NodeId input) {
              return weights_[facts_.view(input).base];
            }));
  }

  /// Of an element, in the type that it has before it is widened.
  std::size_t stored_bytes(NodeId id) const {
    std::size_t bytes = size_of(graph_[id].dtype);
    for (; graph_[id].op == Op::Cast; bytes = std::min(bytes, size_of(graph_[id].dtype)))
      id = facts_.view(graph_[id].inputs[0]).base;
    return bytes;
  }

  /// Whether there are windows, each with fewer elements to sum than there are windows.
  bool sums_windows(NodeId factor, const Node& sum) const {
    bool windows = false;
    for (const Expr& at : facts_.view(factor).map.coords) {
      const std::set<int> axes = axes_of(at);
      if (axes.size() < 2)
        continue;
      double summed = 1, kept = 1;
      for (const int axis : axes)
        (is_summed(sum, std::size_t(axis)) ? summed : kept) *=
            elements_of({graph_[factor].shape[std::size_t(axis)]});
      if (summed == 1 || kept <= summed)
        return false;
      windows = true;
    }
    return windows;
  }

  /// The axes of the box that a coordinate of a view depends on.
  static std::set<int> axes_of(const Expr& at) {
    std::set<int> axes;
    for (const Expr& v : variables_of(at))
      if (v.is_axis()) // no size
        axes.insert(v.axis_number());
    return axes;
  }

  void vote_of_output(NodeId id) {
    const View& view = facts_.view(id);
    const Shape& shape = graph_[id].shape;
    for (std::size_t last = shape.size(); last-- > 0;) {
      if (is_unit(shape[last]))
        continue;
      for (std::size_t dim = 0; dim < graph_[view.base].shape.size(); ++dim)
        if (plain_axis(view.map.coords[dim]) == int(last) && !is_unit(graph_[view.base].shape[dim]))
          add_vote(view.base, dim, kOfFixedOrder);
      return;
    }
  }

  // Orders.

  static double votes_for(const Votes& votes, int value, int label) {
    const auto all = votes.find(value);
    if (all == votes.end())
      return 0;
    const auto of = all->second.find(label);
    return of == all->second.end() ? 0 : of->second;
  }

  /// Whether the members are one box, each axis once.
  bool is_one_box(const std::vector<NodeId>& members) const {
    std::optional<std::set<int>> box;
    for (const NodeId id : members) {
      const std::vector<int> labels = labels_of(id);
      const std::set<int> all(labels.begin(), labels.end());
      if (all.size() != labels.size() || (box && *box != all))
        return false;
      box = all;
    }
    return box && box->size() > 1 && elements_of(graph_[members[0]].shape) >= least_elements_;
  }

  /// Whether members are computed in orders of their own that end with different axes.
  bool is_mixed(const std::vector<NodeId>& members) const {
    return std::any_of(members.begin(), members.end(), [&](NodeId id) {
      return labels_of(id).back() != labels_of(members[0]).back();
    });
  }

  /// The axis that has most votes; without any, the one that most members end with.
  int innermost(const Votes& votes, int value, const std::vector<NodeId>& members) const {
    std::map<int, double> weights;
    if (const auto all = votes.find(value); all != votes.end())
      weights = all->second;
    if (weights.empty())
      for (const NodeId id : members)
        weights[labels_of(id).back()] += bytes_of(id);
    return std::max_element(weights.begin(), weights.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }

  /// The labels in an order that ends with one of them: a member's where there is such a one.
  std::vector<int> order_with(const std::vector<NodeId>& members, int last) const {
    for (const NodeId id : members)
      if (labels_of(id).back() == last)
        return labels_of(id);
    std::vector<int> order = labels_of(members[0]);
    std::erase(order, last);
    order.push_back(last);
    return order;
  }

  /// What is read by windows votes for the innermost axis of the results, and they for its.
  void vote_for_neighbour(Votes& votes, std::set<int>& asked, NodeId id, NodeId other) const {
    const int value = values_.find(value_[id]);
    const auto order = orders_.find(values_.find(value_[other]));
    if (order == orders_.end())
      return;
    const std::vector<int> labels = labels_of(id);
    if (std::find(labels.begin(), labels.end(), order->second.back()) == labels.end())
      return;
    votes[value][order->second.back()] += kOfWindows * bytes_of(id);
    asked.insert(value);
  }

  /// Where a factor is computed in an order whose rows are what a product sums, the rows of the
  /// results are of the other factor. Not where it is a weight; and not the other way round:
  /// results may be few, as a weight's gradient is, and say nothing of what both factors are read
  /// for.
  void vote_for_product(Votes& votes, std::set<int>& asked, NodeId factor, NodeId sum) const {
    const NodeId base = facts_.view(factor).base;
    const Sides sides = sides_of(factor, sum);
    if (sides.depths.empty() || sides.widths.empty())
      return;
    const auto order = orders_.find(values_.find(value_[base]));
    if (order == orders_.end() || std::ranges::none_of(sides.depths, [&](std::size_t dim) {
          return label(base, dim) == order->second.back();
        }))
      return;
    const std::size_t last = sides.widths.back();
    if (graph_[sum].shape[last].lower() < kLeastRow)
      return;
    votes[values_.find(value_[sum])][label(sum, last)] += kOfWindows * bytes_of(sum);
    asked.insert(values_.find(value_[sum]));
  }

  void decide() {
    constexpr int kRounds = 4; // of values that follow each other
    for (int round = 0; round < kRounds; ++round) {
      Votes votes = votes_;
      std::set<int> asked = read_; // others keep their order, if it is one
      for (const auto& [base, result] : windows_) {
        vote_for_neighbour(votes, asked, base, result);
        vote_for_neighbour(votes, asked, result, base);
      }
      for (const auto& [factor, sum] : products_)
        vote_for_product(votes, asked, factor, sum);
      std::map<int, std::vector<int>> orders;
      for (const auto& [value, members] : members_) {
        if (!is_one_box(members))
          continue;
        const int last = innermost(votes, value, members), own = labels_of(members[0]).back();
        if (is_mixed(members) ||
            (asked.contains(value) && votes_for(votes, value, last) > votes_for(votes, value, own)))
          orders[value] = order_with(members, last);
      }
      if (orders == orders_)
        return;
      orders_ = std::move(orders);
    }
  }

  std::vector<std::int64_t> dims_in(const std::vector<int>& order, NodeId id) const {
    std::vector<std::int64_t> dims;
    for (std::size_t dim = 0; dim < axes_[id].size(); ++dim)
      if (label(id, dim) == kNoLabel)
        dims.push_back(std::int64_t(dim));
    for (const int l : order)
      for (std::size_t dim = 0; dim < axes_[id].size(); ++dim)
        if (label(id, dim) == l)
          dims.push_back(std::int64_t(dim));
    return std::is_sorted(dims.begin(), dims.end()) ? std::vector<std::int64_t>{} : dims;
  }

  const Graph& graph_;
  GraphFacts facts_;
  const double least_elements_;
  const std::int64_t copied_bytes_; ///< at once
  Labels labels_, values_;
  std::vector<std::vector<int>> axes_;         ///< by node and dim: the label
  std::vector<int> value_;                     ///< by node: nodes that are joined have one
  std::vector<bool> weights_;                  ///< by node: is_weight()
  std::map<int, std::vector<NodeId>> members_; ///< by value
  Votes votes_;
  std::set<int> read_;                              ///< values on which readers vote
  std::map<int, std::vector<int>> orders_;          ///< by value: labels
  std::vector<std::pair<NodeId, NodeId>> windows_;  ///< what is read, and the reduction's result
  std::vector<std::pair<NodeId, NodeId>> products_; ///< factors in 16 bits, and their sums
};

std::vector<std::int64_t> inverse(const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> result(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    result[std::size_t(order[i])] = std::int64_t(i);
  return result;
}

/// An elementwise node with its dims in an order.
NodeId permuted(Graph& g, const Node& node, const std::vector<NodeId>& inputs,
                const std::vector<std::int64_t>& order) {
  std::vector<NodeId> operands;
  for (const NodeId input : inputs)
    operands.push_back(g.permute(input, order));
  return g.add(node.op, operands, node.attrs);
}

/// A reduction with the dims of its result in an order, of an operand that `in_order` gives with
/// its dims in an order.
template <class InOrder>
NodeId reduced(Graph& g, const Node& node, std::size_t rank, const std::vector<std::int64_t>& order,
               const InOrder& in_order) {
  std::vector<std::int64_t> kept, box, summed;
  for (std::size_t i = 0; i < rank; ++i)
    if (std::find(node.attrs.axes.begin(), node.attrs.axes.end(), std::int64_t(i)) ==
        node.attrs.axes.end())
      kept.push_back(std::int64_t(i));
  for (const std::int64_t dim : order)
    box.push_back(kept[std::size_t(dim)]);
  for (const std::int64_t axis : node.attrs.axes) {
    summed.push_back(std::int64_t(box.size()));
    box.push_back(axis);
  }
  return g.reduce(node.op, in_order(box), summed);
}

} // namespace

Graph with_axis_orders(const Graph& graph, const kernel::Target& target, double least_elements) {
  if (!target.is_gpu())
    return graph;
  const Orders orders = OrderFinder(graph, target, least_elements).run();
  if (std::all_of(orders.begin(), orders.end(), [](const auto& order) { return order.empty(); }))
    return graph;
  Graph out;
  std::vector<NodeId> to(graph.size(), ir::kNoNode);
  for (const NodeId id : graph.inputs()) // in their slots
    to[id] = out.add(Op::Input, {}, graph[id].attrs);
  std::vector<int> readers(graph.size(), 0);
  for (NodeId id = 0; id < graph.size(); ++id)
    for (const NodeId input : graph[id].inputs)
      ++readers[input];
  for (const NodeId id : graph.outputs)
    ++readers[id];
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    if (node.op == Op::Input)
      continue;
    const auto made = [&](const std::vector<NodeId>& of) {
      std::vector<NodeId> inputs;
      for (const NodeId input : of)
        inputs.push_back(to[input]);
      return inputs;
    };
    const std::vector<std::int64_t>& order = orders[id];
    if (order.empty()) {
      to[id] = out.add(node.op, made(node.inputs), node.attrs);
    } else if (!is_reduction(node)) {
      to[id] = out.permute(permuted(out, node, made(node.inputs), order), inverse(order));
    } else {
      // A sum of products stays one of the very product.
      const Node& operand = graph[node.inputs[0]];
      const NodeId sums = reduced(out, node, operand.shape.size(), order, [&](const auto& box) {
        return operand.op == Op::Mul && readers[node.inputs[0]] == 1
                   ? permuted(out, operand, made(operand.inputs), box)
                   : out.permute(to[node.inputs[0]], box);
      });
      to[id] = out.permute(sums, inverse(order));
    }
  }
  for (const NodeId id : graph.outputs)
    out.outputs.push_back(to[id]);
  return passes::normalize()(ir::without_dead_code(out));
}

} // namespace egret::compiler
