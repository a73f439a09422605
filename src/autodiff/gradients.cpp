// Reverse accumulation over the graph.
#include "autodiff/rules.h"
#include "egret/autodiff.h"
#include "support/fail.h"

#include <algorithm>

namespace egret {

using autodiff::Rule;
using autodiff::Site;
using autodiff::Value;
using ir::Graph;
using ir::Node;
using ir::NodeId;

namespace {

class Reverse {
public:
  Reverse(Graph& graph, std::span<const NodeId> wrt)
      : graph_(graph), size_(graph.size()), active_(size_, false), parts_(size_) {
    for (NodeId id : wrt)
      active_[id] = is_float(graph[id].dtype);
    for (NodeId id = 0; id < size_; ++id)
      for (std::size_t k = 0; k < graph[id].inputs.size(); ++k)
        if (flows(id, k))
          active_[id] = true;
  }

  void seed(NodeId output, NodeId gradient) { add_part(output, {&graph_, gradient}); }

  void run() {
    for (std::size_t id = size_; id-- > 0;)
      if (!parts_[id].empty())
        pull(static_cast<NodeId>(id));
  }

  NodeId gradient_of(NodeId id) {
    if (parts_[id].empty())
      return autodiff::full(graph_, graph_[id].shape, graph_[id].dtype, 0).id;
    return total(id).id;
  }

private:
  /// Whether a gradient passes from a node to its operand number `k`, and on to a node of wrt.
  bool flows(NodeId id, std::size_t k) const {
    const Node& node = graph_[id];
    return is_float(node.dtype) && active_[node.inputs[k]] && autodiff::rule_of(node.op, k);
  }

  void add_part(NodeId id, Value gradient) {
    if (active_[id])
      parts_[id].push_back(gradient);
  }

  /// What gathers of one value give it are scatters into zeros of their own: each adds to what the
  /// one before has left, so that none of them is read again.
  void chain_scatters(std::vector<Value>& parts) {
    const auto scatters = std::stable_partition(parts.begin(), parts.end(),
                                                [](Value v) { return !adds_to_zeros(v); });
    if (scatters == parts.end())
      return;
    Value sum = *scatters;
    for (auto at = scatters + 1; at != parts.end(); ++at) {
      const Node node = at->node();
      sum = autodiff::scatter(Op::ScatterAdd, sum, {&graph_, node.inputs[1]},
                              {&graph_, node.inputs[2]}, node.attrs.axes[0]);
    }
    parts.erase(scatters, parts.end());
    parts.push_back(sum);
  }
  static bool adds_to_zeros(Value v) {
    return v.node().op == Op::ScatterAdd &&
           autodiff::constant_of({v.graph, v.node().inputs[0]}) == 0.0;
  }

  Value total(NodeId id) {
    chain_scatters(parts_[id]);
    Value sum = parts_[id].front();
    for (std::size_t i = 1; i < parts_[id].size(); ++i)
      sum = sum + parts_[id][i];
    parts_[id] = {sum};
    return sum;
  }

  void pull(NodeId id) {
    const Node node = graph_[id];
    // What comes to a view is added where the view comes from: never in an expanded box.
    const bool one_by_one =
        node.op == Op::Expand || node.op == Op::Reshape || node.op == Op::Permute;
    if (one_by_one)
      chain_scatters(parts_[id]);
    const std::vector<Value> gradients = one_by_one ? parts_[id] : std::vector<Value>{total(id)};
    for (Value g : gradients) {
      Site site{.g = g, .y = {&graph_, id}, .attrs = node.attrs};
      Value* operands[] = {&site.a, &site.b, &site.c};
      for (std::size_t k = 0; k < node.inputs.size(); ++k)
        *operands[k] = {&graph_, node.inputs[k]};
      for (std::size_t k = 0; k < node.inputs.size(); ++k)
        if (flows(id, k))
          add_part(node.inputs[k], autodiff::rule_of(node.op, k)(site));
    }
  }

  Graph& graph_;
  std::size_t size_;
  std::vector<bool> active_; ///< depends on wrt by floats
  std::vector<std::vector<Value>> parts_;
};

void check(const Graph& graph, std::span<const NodeId> outputs, std::span<const NodeId> seeds,
           std::span<const NodeId> wrt) {
  if (outputs.size() != seeds.size())
    fail(ErrorKind::Value, "gradients: {} outputs and {} seeds; each output needs one",
         outputs.size(), seeds.size());
  for (auto list : {outputs, seeds, wrt})
    for (NodeId id : list)
      if (id >= graph.size())
        fail(ErrorKind::Value, "gradients: node %{} does not exist; the graph has {} nodes", id,
             graph.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Node &output = graph[outputs[i]], &seed = graph[seeds[i]];
    if (!is_float(output.dtype))
      fail(ErrorKind::DType,
           "gradients: output {} is {}; only floats have gradients (cast it first)", i,
           name_of(output.dtype));
    if (seed.dtype != output.dtype)
      fail(ErrorKind::DType, "gradients: seed {} is {}, its output {}; they must be equal", i,
           name_of(seed.dtype), name_of(output.dtype));
    if (seed.shape != output.shape)
      fail(ErrorKind::Shape, "gradients: seed {} has shape {}, its output {}; they must be equal",
           i, to_string(seed.shape), to_string(output.shape));
  }
}

/// Appends to `graph` the nodes of `longer`, a continuation of it, that `needed` depends on, and
/// renames `needed`.
void append_needed(Graph& graph, const Graph& longer, std::vector<NodeId>& needed) {
  const auto first = static_cast<NodeId>(graph.size());
  std::vector<bool> live(longer.size(), false);
  for (NodeId id : needed)
    live[id] = true;
  for (std::size_t id = longer.size(); id-- > first;)
    if (live[id])
      for (NodeId operand : longer[static_cast<NodeId>(id)].inputs)
        live[operand] = true;
  std::vector<NodeId> renamed(longer.size());
  for (NodeId id = 0; id < longer.size(); ++id) {
    renamed[id] = id;
    if (id < first || !live[id])
      continue;
    std::vector<NodeId> operands;
    for (NodeId operand : longer[id].inputs)
      operands.push_back(renamed[operand]);
    renamed[id] = graph.add(longer[id].op, operands, longer[id].attrs);
  }
  for (NodeId& id : needed)
    id = renamed[id];
}

} // namespace

std::vector<NodeId> gradients(Graph& graph, std::span<const NodeId> outputs,
                              std::span<const NodeId> seeds, std::span<const NodeId> wrt) {
  check(graph, outputs, seeds, wrt);
  Graph scratch = graph; // rules make nodes that later simplifications leave unread
  Reverse reverse(scratch, wrt);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    reverse.seed(outputs[i], seeds[i]);
  reverse.run();
  std::vector<NodeId> results;
  for (NodeId id : wrt)
    results.push_back(reverse.gradient_of(id));
  append_needed(graph, scratch, results);
  return results;
}

} // namespace egret
