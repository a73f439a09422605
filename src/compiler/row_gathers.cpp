#include "compiler/row_gathers.h"

#include "compiler/views.h"
#include "egret/passes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// Of a value's elements, those that are gathered, at the most.
constexpr double kMostGathered = 0.25;
/// Of a value's elements, those of what was reduced for it, at the most.
constexpr double kMostReduced = 0.125;
/// Operations that move behind a gather, and arrays that are gathered from in their place.
constexpr int kMostMovedOperations = 32;
constexpr std::size_t kMostGatheredTables = 6;

/// Movement operations, the first one first, from a value to what reads it.
using MovementChain = std::vector<NodeId>;

class RowGathers {
public:
  explicit RowGathers(const Graph& graph)
      : graph_(graph), facts_(graph), now_(graph.size(), ir::kNoNode) {}

  Graph run() {
    for (NodeId id = 0; id < graph_.size(); ++id)
      now_[id] = changed(id);
    for (const NodeId id : graph_.outputs)
      to_.outputs.push_back(now_[id]);
    return any_ ? ir::without_dead_code(to_) : graph_;
  }

private:
  NodeId changed(NodeId id) {
    const Node& node = graph_[id];
    if (node.op == Op::Input)
      return to_.input(node.attrs.name, node.dtype, node.shape, node.attrs.by_value);
    if (node.op == Op::Gather && moves(id)) {
      any_ = true;
      return moved(id);
    }
    if (node.op == Op::ScatterAdd)
      if (const auto row = one_of_row(id)) {
        any_ = true;
        return chosen(id, *row);
      }
    std::vector<NodeId> inputs;
    for (const NodeId input : node.inputs)
      inputs.push_back(now_[input]);
    return to_.add(node.op, inputs, node.attrs);
  }

  // Gathers.

  struct Cone {
    int operations = 0;
    std::vector<NodeId> tables;
  };

  bool moves(NodeId gather) const {
    const Node& node = graph_[gather];
    const NodeId data = node.inputs[0], base = facts_.view(data).base;
    const double elements = elements_of(graph_[data].shape);
    Cone cone;
    return is_computed(base) && !facts_.is_output(base) &&
           graph_[data].shape[std::size_t(node.attrs.axes.at(0))].is_constant() &&
           elements_of(node.shape) <= kMostGathered * elements && collect(data, elements, cone);
  }

  bool is_computed(NodeId base) const {
    const Op op = graph_[base].op;
    return is_elementwise(op) && info_of(op).cls != OpClass::Source;
  }

  /// Adds what a value is made of; whether all of it may be gathered.
  bool collect(NodeId id, double elements, Cone& cone) const {
    const View& view = facts_.view(id);
    const Node& base = graph_[view.base];
    if (!view.map.is_total())
      return false;
    if (base.op == Op::Constant)
      return true;
    if (is_computed(view.base))
      return ++cone.operations <= kMostMovedOperations &&
             std::all_of(base.inputs.begin(), base.inputs.end(),
                         [&](NodeId input) { return collect(input, elements, cone); });
    if (base.op != Op::Input && (info_of(base.op).cls != OpClass::Reduce ||
                                 elements_of(base.shape) > kMostReduced * elements))
      return false;
    if (std::find(cone.tables.begin(), cone.tables.end(), view.base) == cone.tables.end())
      cone.tables.push_back(view.base);
    return cone.tables.size() <= kMostGatheredTables;
  }

  NodeId moved(NodeId id) {
    const Node& node = graph_[id];
    const std::size_t axis = std::size_t(node.attrs.axes.at(0));
    const NodeId value = gathered(node.inputs[0], {}, node);
    // Where an index is no place, a gather gives 0, of which operations make something else.
    const NodeId index = now_[node.inputs[1]];
    const Shape of_index = to_[index].shape;
    const DType type = to_[index].dtype;
    const auto number = [&](const Scalar& s) { return to_.broadcast(to_.constant(s), of_index); };
    const NodeId below = to_.binary(Op::Lt, index, number(Scalar::of(type, 0.0)));
    NodeId held = to_.binary(Op::Xor, below, number(Scalar::of(DType::Bool, 1.0)));
    const std::int64_t extent = graph_[node.inputs[0]].shape[axis].value();
    const Scalar end = Scalar::of(type, extent);
    if (end.as_int() == extent) // all numbers of a narrow type are below what it cannot hold
      held = to_.binary(Op::And, held, to_.binary(Op::Lt, index, number(end)));
    Shape placed(axis, Expr(1));
    placed.insert(placed.end(), of_index.begin(), of_index.end());
    placed.resize(node.shape.size(), Expr(1));
    held = to_.expand(to_.reshape(held, placed), node.shape);
    return to_.select(held, value, to_.broadcast(to_.constant(node.dtype, 0.0), node.shape));
  }

  /// What `gather` takes of a value that it sees through a chain.
  NodeId gathered(NodeId id, MovementChain chain, const Node& gather) {
    for (; is_movement(graph_[id].op); id = graph_[id].inputs[0])
      chain.insert(chain.begin(), id);
    const Node& node = graph_[id];
    if (node.op == Op::Constant)
      return to_.broadcast(now_[id], gather.shape);
    if (is_computed(id)) {
      std::vector<NodeId> inputs;
      for (const NodeId input : node.inputs)
        inputs.push_back(gathered(input, chain, gather));
      return to_.add(node.op, inputs, node.attrs);
    }
    NodeId seen = now_[id];
    for (const NodeId movement : chain) {
      const std::array inputs{seen};
      seen = to_.add(graph_[movement].op, inputs, graph_[movement].attrs);
    }
    return to_.gather(seen, now_[gather.inputs[1]], gather.attrs.axes.at(0));
  }

  // Scatters.

  struct Row {
    NodeId index;         ///< in each row: its last dim is 1
    std::int64_t columns; ///< of a row
  };

  /// The number that a value is everywhere.
  std::optional<double> number(NodeId id) const {
    const View& view = facts_.view(id);
    const Node& base = graph_[view.base];
    if (!view.map.is_total())
      return std::nullopt;
    if (base.op == Op::Constant)
      return base.attrs.value.as_double();
    if (base.op == Op::Iota && view.map.coords[0].is_constant())
      return double(view.map.coords[0].value());
    return std::nullopt;
  }

  /// A value as it is seen through movement, which may stand between any two operations.
  struct Seen {
    NodeId base;
    IndexMap map;
    friend bool operator==(const Seen&, const Seen&) = default;
  };
  Seen seen(NodeId id) const { return {facts_.view(id).base, facts_.view(id).map}; }
  Seen operand(const Seen& of, std::size_t k) const {
    const NodeId id = graph_[of.base].inputs[k];
    return {facts_.view(id).base, facts_.view_through(id, of.map)};
  }

  /// Whether a truth value is a conjunction of 0 <= index and index < columns.
  bool holds_within(NodeId id, NodeId index, std::int64_t columns) const {
    const Seen both = seen(id), wanted = seen(index);
    if (graph_[both.base].op != Op::And || !both.map.is_total())
      return false;
    const auto is_less = [&](const Seen& test, std::int64_t bound) {
      const Node& node = graph_[test.base];
      return node.op == Op::Lt && operand(test, 0) == wanted && number(node.inputs[1]) == bound;
    };
    bool above = false, below = false;
    for (std::size_t part = 0; part < 2; ++part) {
      const Seen test = operand(both, part);
      if (!test.map.is_total())
        return false;
      below |= is_less(test, columns);
      if (graph_[test.base].op == Op::Xor)
        for (std::size_t k = 0; k < 2; ++k)
          above |= is_less(operand(test, k), 0) && number(graph_[test.base].inputs[1 - k]) == 1;
    }
    return above && below;
  }

  /// Whether a value numbers the first elements of rows of so many columns, in order.
  bool begins_rows(NodeId id, std::int64_t columns) const {
    const View& view = facts_.view(id);
    if (graph_[view.base].op != Op::Iota || !view.map.is_total())
      return false;
    const Shape& shape = graph_[id].shape;
    Expr first(0);
    std::int64_t step = columns;
    for (std::size_t d = shape.size() - 1; d-- > 0;) {
      first = first + Expr::axis(int(d), shape[d]) * Expr(step);
      step *= shape[d].value();
    }
    return view.map.coords[0] == first;
  }

  /// A scatter into zeros of one element of each row at the most, by the index of a gather.
  std::optional<Row> one_of_row(NodeId id) const {
    const Node& node = graph_[id];
    const Shape& data = graph_[node.inputs[0]].shape;
    const Node& index = graph_[node.inputs[1]];
    if (data.size() != 1 || !data[0].is_constant() || number(node.inputs[0]) != 0 ||
        index.op != Op::Select || index.shape.empty() ||
        !std::all_of(index.shape.begin(), index.shape.end(),
                     [](const Expr& e) { return e.is_constant() && e.value() > 0; }) ||
        index.shape.back().value() != 1 || number(index.inputs[2]) != -1)
      return std::nullopt;
    const std::int64_t rows = element_count(index.shape).value();
    const Node& sum = graph_[index.inputs[1]];
    if (data[0].value() % rows != 0 || sum.op != Op::Add)
      return std::nullopt;
    const std::int64_t columns = data[0].value() / rows;
    for (std::size_t k = 0; k < 2; ++k)
      if (begins_rows(sum.inputs[1 - k], columns) &&
          holds_within(index.inputs[0], sum.inputs[k], columns))
        return Row{sum.inputs[k], columns};
    return std::nullopt;
  }

  NodeId chosen(NodeId id, const Row& row) {
    const Node& node = graph_[id];
    const NodeId index = now_[row.index];
    Shape box = graph_[row.index].shape;
    box.back() = Expr(row.columns);
    Shape last(box.size(), Expr(1));
    last.back() = box.back();
    const NodeId places =
        to_.expand(to_.reshape(to_.iota(Expr(row.columns), to_[index].dtype), last), box);
    NodeId update = now_[node.inputs[2]];
    if (is_float(node.dtype)) // the sum of 0 and -0 is 0
      update = to_.binary(Op::Add, update,
                          to_.broadcast(to_.constant(node.dtype, 0.0), to_[update].shape));
    const NodeId here = to_.binary(Op::Eq, to_.expand(index, box), places);
    return to_.reshape(to_.select(here, to_.expand(update, box),
                                  to_.broadcast(to_.constant(node.dtype, 0.0), box)),
                       node.shape);
  }

  const Graph& graph_;
  GraphFacts facts_;
  Graph to_;
  std::vector<NodeId> now_;
  bool any_ = false;
};

} // namespace

Graph with_row_gathers(const Graph& graph) {
  for (NodeId id = 0; id < graph.size(); ++id)
    if (graph[id].op == Op::Gather || graph[id].op == Op::ScatterAdd)
      return RowGathers(graph).run();
  return graph;
}

} // namespace egret::compiler
