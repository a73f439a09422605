#include "compiler/sink_reshapes.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// Whether each dim of `whole` is a product of consecutive dims of `split`.
bool refines(const Shape& split, const Shape& whole) {
  std::size_t at = 0;
  for (const Expr& dim : whole) {
    Expr product(1);
    do {
      if (at == split.size())
        return false;
      product = product * split[at++];
    } while (!(product == dim));
  }
  return at == split.size();
}

class Sinker {
public:
  explicit Sinker(const Graph& graph) : graph_(graph), to_(graph.size()) {}

  Graph run() {
    for (NodeId id : graph_.inputs()) // in their slots
      to_[id] = out_.add(Op::Input, {}, graph_[id].attrs);
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (graph_[id].op != Op::Input)
        to_[id] = copied(graph_[id]);
    for (NodeId id : graph_.outputs)
      out_.outputs.push_back(to_[id]);
    return ir::without_dead_code(out_);
  }

private:
  NodeId copied(const Node& node) {
    std::vector<NodeId> inputs;
    for (NodeId i : node.inputs)
      inputs.push_back(to_[i]);
    if (!is_elementwise(node.op))
      return out_.add(node.op, inputs, node.attrs);
    if (const auto box = box_of(inputs, node.shape)) {
      for (NodeId& i : inputs)
        i = before_reshape(i, *box);
      return out_.reshape(add_by_rows(node, inputs, true), node.shape);
    }
    return add_by_rows(node, inputs, false);
  }

  NodeId add_by_rows(const Node& node, const std::vector<NodeId>& inputs, bool known) {
    const NodeId id = out_.add(node.op, inputs, node.attrs);
    by_rows_.resize(std::max<std::size_t>(by_rows_.size(), id + 1), false);
    by_rows_[id] = by_rows_[id] || known ||
                   std::any_of(inputs.begin(), inputs.end(),
                               [&](NodeId i) { return goes_by_rows(i) || repeats_reduction(i); });
    return id;
  }

  bool goes_by_rows(NodeId id) const { return id < by_rows_.size() && by_rows_[id]; }

  /// Results of a reduction, repeated along the axes that it went over.
  bool repeats_reduction(NodeId id) const {
    const Shape shape = out_[id].shape;
    if (out_[id].op != Op::Expand)
      return false;
    NodeId base = out_[id].inputs[0];
    while (out_[base].op == Op::Reshape || is_elementwise(out_[base].op)) {
      NodeId next = out_[base].inputs[0];
      for (NodeId i : out_[base].inputs) // not a constant beside it
        if (out_[i].op != Op::Constant && out_[i].op != Op::Expand)
          next = i;
      base = next;
    }
    return info_of(out_[base].op).cls == OpClass::Reduce &&
           out_[out_[base].inputs[0]].shape == shape;
  }

  /// The box of an operand that goes by rows and was reshaped into `shape` by joining axes.
  std::optional<Shape> box_of(const std::vector<NodeId>& inputs, const Shape& shape) const {
    for (NodeId i : inputs) {
      const NodeId base = below_reshapes(i);
      if (base != i && goes_by_rows(base) && out_[base].shape.size() > shape.size() &&
          refines(out_[base].shape, shape))
        return out_[base].shape;
    }
    return std::nullopt;
  }

  NodeId below_reshapes(NodeId id) const {
    while (out_[id].op == Op::Reshape)
      id = out_[id].inputs[0];
    return id;
  }

  NodeId before_reshape(NodeId id, const Shape& box) {
    const NodeId base = below_reshapes(id);
    return out_[base].shape == box ? base : out_.reshape(id, box);
  }

  const Graph& graph_;
  Graph out_;
  std::vector<NodeId> to_;
  std::vector<bool> by_rows_; ///< by node of out_: elementwise, in the box of a reduction below it
};

} // namespace

Graph sink_reshapes(const Graph& graph) {
  return Sinker(graph).run();
}

} // namespace egret::compiler
