#include "backend/reference/reference.h"

#include "backend/reference/node_eval.h"
#include "support/fail.h"

#include <algorithm>
#include <optional>

namespace egret::backend::reference {

namespace {

class Execution {
public:
  Execution(const ir::Graph& graph, std::span<const HostArray> inputs, bool errors)
      : graph_(graph), inputs_(inputs), errors_(errors), bindings_(bind_inputs(graph, inputs)),
        cells_(graph.size()) {}

  /// Computes what `targets` need; other arrays are dropped after their last reader.
  void run(std::span<const ir::NodeId> targets) {
    std::vector<int> readers(graph_.size(), 0);
    for (ir::NodeId target : targets) {
      ensure(target < graph_.size(), "reference: no node {}", target);
      ++readers[target];
    }
    for (std::size_t id = graph_.size(); id-- > 0;)
      if (readers[id] > 0)
        for (ir::NodeId operand : graph_[static_cast<ir::NodeId>(id)].inputs)
          ++readers[operand];
    for (ir::NodeId id = 0; id < graph_.size(); ++id)
      if (readers[id] > 0) {
        compute(id);
        for (ir::NodeId operand : graph_[id].inputs)
          if (--readers[operand] == 0)
            cells_[operand].reset();
      }
  }

  Expected take(ir::NodeId id) const { return {cells_[id]->array, cells_[id]->errors}; }

private:
  void compute(ir::NodeId id) {
    const ir::Node& node = graph_[id];
    Cells& result = cells_[id].emplace(node.dtype, bindings_.values_of(node.shape), errors_);
    if (node.op == Op::Input) {
      result.array = inputs_[static_cast<std::size_t>(node.attrs.slot)];
      return;
    }
    std::vector<const Cells*> operands;
    for (ir::NodeId operand : node.inputs)
      operands.push_back(&*cells_[operand]);
    switch (info_of(node.op).cls) {
    case OpClass::Source:
      return eval_source(node, result);
    case OpClass::Convert:
    case OpClass::Unary:
    case OpClass::Binary:
    case OpClass::Ternary:
    case OpClass::Marker:
      return eval_elementwise(node, operands, result);
    case OpClass::Reduce:
      return eval_reduce(node, operands, result);
    case OpClass::Scan:
      return eval_scan(node, operands, result);
    case OpClass::Sort:
      return eval_sort(node, operands, result);
    case OpClass::Gather:
      return eval_gather(node, operands, result);
    case OpClass::Scatter:
      return eval_scatter(node, operands, result);
    case OpClass::Movement:
      return eval_movement(node, operands, bindings_, result);
    }
  }

  const ir::Graph& graph_;
  std::span<const HostArray> inputs_;
  bool errors_;
  Bindings bindings_;
  std::vector<std::optional<Cells>> cells_;
};

std::string place_of(const ir::Node& input) {
  return fmt::format("input `{}` (slot {})", input.attrs.name, input.attrs.slot);
}

} // namespace

Bindings bind_inputs(const ir::Graph& graph, std::span<const HostArray> inputs) {
  if (inputs.size() != graph.inputs().size())
    fail(ErrorKind::Value, "reference: the graph has {} inputs, {} are given",
         graph.inputs().size(), inputs.size());
  Bindings bindings;
  for (bool symbols : {true, false}) // first the dims that bind, then those that follow
    for (std::size_t slot = 0; slot < inputs.size(); ++slot) {
      const ir::Node& node = graph[graph.inputs()[slot]];
      const HostArray& array = inputs[slot];
      if (array.dtype != node.dtype)
        fail(ErrorKind::DType, "{}: is {}, the graph needs {}", place_of(node),
             name_of(array.dtype), name_of(node.dtype));
      if (array.dims.size() != node.shape.size())
        fail(ErrorKind::Shape, "{}: has shape {}, the graph needs {}", place_of(node),
             to_string(array.dims), to_string(node.shape));
      for (std::size_t i = 0; i < node.shape.size(); ++i)
        if (node.shape[i].is_symbol() == symbols)
          bindings.bind(
              node.shape[i], array.dims[i],
              fmt::format("{} of shape {}, dim {}", place_of(node), to_string(array.dims), i));
    }
  return bindings;
}

std::vector<HostArray> execute(const ir::Graph& graph, std::span<const HostArray> inputs) {
  return execute(graph, inputs, graph.outputs);
}

std::vector<HostArray> execute(const ir::Graph& graph, std::span<const HostArray> inputs,
                               std::span<const ir::NodeId> nodes) {
  Execution execution(graph, inputs, false);
  execution.run(nodes);
  std::vector<HostArray> results;
  for (ir::NodeId id : nodes)
    results.push_back(execution.take(id).value);
  return results;
}

std::vector<Expected> expect(const ir::Graph& graph, std::span<const HostArray> inputs) {
  return expect(graph, inputs, graph.outputs);
}

std::vector<Expected> expect(const ir::Graph& graph, std::span<const HostArray> inputs,
                             std::span<const ir::NodeId> nodes) {
  Execution execution(graph, inputs, true);
  execution.run(nodes);
  std::vector<Expected> results;
  for (ir::NodeId id : nodes)
    results.push_back(execution.take(id));
  return results;
}

} // namespace egret::backend::reference
