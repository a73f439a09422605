#include "compiler/join_scatters.h"

#include "compiler/unrolled_factors.h"
#include "ir/structure.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace egret::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

/// Scatters that become one, at the most: its kernel has instructions for each of them.
constexpr std::size_t kMostJoined = 16;

class Joiner {
public:
  explicit Joiner(const Graph& graph) : graph_(graph), uses_(graph.size(), 0) {
    for (NodeId id = 0; id < graph.size(); ++id)
      for (const NodeId input : graph[id].inputs)
        ++uses_[input];
    for (const NodeId id : graph.outputs)
      uses_[id] += 2; // it must stay
  }

  Graph run() {
    std::vector<std::vector<NodeId>> chain_of(graph_.size()); // by its last scatter
    std::vector<bool> inner(graph_.size(), false);
    bool any = false;
    for (NodeId id = graph_.size(); id-- > 0;)
      if (info_of(graph_[id].op).cls == OpClass::Scatter && !inner[id]) {
        chain_of[id] = chain(id);
        any |= chain_of[id].size() > 1;
        for (const NodeId part : chain_of[id])
          inner[part] = true;
      }
    if (!any)
      return graph_;
    Graph out;
    std::vector<NodeId> to(graph_.size());
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_[id];
      std::vector<NodeId> operands;
      for (const NodeId input : node.inputs)
        operands.push_back(to[input]);
      to[id] = chain_of[id].size() > 1 ? joined(out, chain_of[id], to)
                                       : out.add(node.op, operands, node.attrs);
    }
    for (const NodeId id : graph_.outputs)
      out.outputs.push_back(to[id]);
    return ir::without_dead_code(out);
  }

private:
  /// The scatters that end in `last`, in their order.
  std::vector<NodeId> chain(NodeId last) const {
    std::vector<NodeId> found{last};
    while (found.size() < kMostJoined && continues(graph_[found.back()].inputs[0], found.back()))
      found.push_back(graph_[found.back()].inputs[0]);
    std::reverse(found.begin(), found.end());
    return found;
  }

  bool continues(NodeId id, NodeId reader) const {
    const Node &a = graph_[id], &b = graph_[reader];
    return a.op == b.op && uses_[id] == 1 && a.attrs.axes == b.attrs.axes &&
           graph_[a.inputs[1]].dtype == graph_[b.inputs[1]].dtype &&
           graph_[a.inputs[1]].shape == graph_[b.inputs[1]].shape;
  }

  NodeId joined(Graph& out, const std::vector<NodeId>& chain, const std::vector<NodeId>& to) const {
    const Node& first = graph_[chain[0]];
    std::vector<NodeId> indices, updates;
    for (const NodeId id : chain) {
      indices.push_back(to[graph_[id].inputs[1]]);
      updates.push_back(to[graph_[id].inputs[2]]);
    }
    const std::int64_t axis = first.attrs.axes[0];
    const NodeId stack = stack_of(out, updates);
    std::vector<std::int64_t> order(out[stack].shape.size());
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + 1, order.begin() + 1 + axis);
    return out.scatter(first.op, to[first.inputs[0]], choice_of(out, indices),
                       out.permute(stack, order), axis);
  }

  /// Values of one shape along a new axis in front. Each is there for all of the axis, so that a
  /// scatter sees what is known of an index.
  static NodeId choice_of(Graph& out, const std::vector<NodeId>& values) {
    const auto count = Expr(static_cast<std::int64_t>(values.size()));
    const Shape shape = out[values[0]].shape, all = with_front(count, shape);
    const NodeId number =
        out.reshape(out.iota(count), with_front(count, Shape(shape.size(), Expr(1))));
    const auto whole = [&](NodeId value) {
      return out.expand(out.reshape(value, with_front(Expr(1), shape)), all);
    };
    NodeId choice = whole(values.back());
    for (std::size_t i = values.size() - 1; i-- > 0;) {
      const NodeId end =
          out.broadcast(out.constant(Scalar::of(DType::I64, static_cast<std::int64_t>(i) + 1)),
                        out[number].shape);
      choice =
          out.select(out.expand(out.binary(Op::Lt, number, end), all), whole(values[i]), choice);
    }
    return choice;
  }

  const Graph& graph_;
  std::vector<int> uses_;
};

} // namespace

Graph join_scatters(const Graph& graph, const kernel::Target& target) {
  return target.is_gpu() ? Joiner(graph).run() : graph;
}

} // namespace egret::compiler
