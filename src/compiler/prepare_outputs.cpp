#include "compiler/prepare_outputs.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace egret::compiler {

using ir::NodeId;

NodeId same_memory(const ir::Graph& graph, NodeId id) {
  while (graph[id].op == Op::Reshape)
    id = graph[id].inputs[0];
  return id;
}

namespace {

bool is_stored_value(const ir::Graph& graph, NodeId id) {
  const Op op = graph[id].op;
  return !is_movement(op) && info_of(op).cls != OpClass::Source;
}

bool has_zero(const Shape& shape) {
  return std::any_of(shape.begin(), shape.end(),
                     [](const Expr& d) { return d.is_constant() && d.value() == 0; });
}

/// The value of a node that has no elements, or reduces none; nothing for others.
std::optional<Scalar> value_of_nothing(const ir::Graph& graph, const ir::Node& node) {
  if (node.op == Op::Input)
    return std::nullopt;
  if (has_zero(node.shape))
    return Scalar{node.dtype, 0};
  if (info_of(node.op).cls == OpClass::Reduce && has_zero(graph[node.inputs[0]].shape))
    return identity_of(monoid_of(node.op), node.dtype);
  return std::nullopt;
}

} // namespace

namespace {

/// Copies a graph node by node, changing what needs to be changed on the way.
class Preparer {
public:
  explicit Preparer(const ir::Graph& graph)
      : graph_(graph), to_(graph.size()), uses_(graph.size(), 0) {
    for (NodeId id = 0; id < graph.size(); ++id)
      for (NodeId input : graph[id].inputs)
        ++uses_[input];
    for (NodeId id : graph.outputs)
      ++uses_[id];
  }

  ir::Graph run() {
    for (NodeId id = 0; id < graph_.size(); ++id)
      to_[id] = copied(id);
    for (NodeId id : graph_.outputs)
      result_.outputs.push_back(own_memory(converted_late(id)));
    return std::move(result_);
  }

private:
  /// The value in memory that no other output has: a copy where it must be, of the last copy.
  NodeId own_memory(NodeId output) {
    const NodeId first = output;
    if (const auto last = last_copy_.find(first); last != last_copy_.end())
      output = last->second;
    while (!is_stored_value(result_, same_memory(result_, output)) ||
           !taken_.insert(same_memory(result_, output)).second)
      output = identity(output);
    return last_copy_[first] = output;
  }

  /// Axes that are put in another order before and after a conversion, as in the gradient of a
  /// transposed factor, are so before it only: the conversion is what is stored then, and nothing
  /// is copied.
  NodeId converted_late(NodeId id) {
    const ir::Node& turned = graph_[id];
    if (turned.op != Op::Permute)
      return to_[id];
    const ir::Node& converted = graph_[turned.inputs[0]];
    if (converted.op != Op::Cast || uses_[turned.inputs[0]] > 1 ||
        graph_[converted.inputs[0]].op != Op::Permute)
      return to_[id];
    return result_.cast(result_.permute(to_[converted.inputs[0]], turned.attrs.axes),
                        converted.dtype);
  }

  NodeId identity(NodeId id) { return result_.unary(Op::StopGradient, id); }

  NodeId copied(NodeId id) {
    const ir::Node& node = graph_[id];
    if (node.op == Op::Input)
      return result_.input(node.attrs.name, node.dtype, node.shape, node.attrs.by_value);
    if (auto value = value_of_nothing(graph_, node))
      return result_.broadcast(result_.constant(*value), node.shape);
    std::vector<NodeId> inputs;
    for (NodeId input : node.inputs)
      inputs.push_back(to_[input]);
    if (info_of(node.op).cls == OpClass::Scatter)
      return scatter(node, inputs);
    return result_.add(node.op, inputs, node.attrs);
  }

  /// A scatter works on its data in place: the data must be a value that only the scatter reads.
  /// Sums are made in the accumulator's type, those of floats by the scatter's kernel itself.
  NodeId scatter(const ir::Node& node, std::vector<NodeId> inputs) {
    const DType sums = accumulator_of(node.dtype);
    NodeId data = node.inputs[0];
    bool shared = uses_[data] > 1;
    for (; graph_[data].op == Op::Reshape; shared |= uses_[data] > 1)
      data = graph_[data].inputs[0];
    if (node.op == Op::ScatterAdd && sums != node.dtype && !is_float(sums)) {
      inputs[0] = result_.cast(inputs[0], sums);
      inputs[2] = result_.cast(inputs[2], sums);
    }
    const bool input = result_[same_memory(result_, inputs[0])].op == Op::Input;
    if (shared || (!is_stored_value(result_, inputs[0]) && !input))
      inputs[0] = identity(inputs[0]);
    return result_.cast(result_.add(node.op, inputs, node.attrs), node.dtype);
  }

  const ir::Graph& graph_;
  ir::Graph result_;
  std::vector<NodeId> to_;
  std::vector<int> uses_;
  std::set<NodeId> taken_;             ///< of result_: memory of outputs so far
  std::map<NodeId, NodeId> last_copy_; ///< by output before it got memory of its own
};

} // namespace

ir::Graph prepare_outputs(const ir::Graph& graph) {
  // What only values without elements needed is dead now.
  return ir::without_dead_code(Preparer(graph).run());
}

} // namespace egret::compiler
