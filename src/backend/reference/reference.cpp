#include "backend/reference/reference.h"

#include "backend/reference/node_eval.h"
#include "backend/reference/terms.h"
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
    plan(targets);
    for (ir::NodeId id = 0; id < graph_.size(); ++id)
      if (readers_[id] > 0 && !within_reader_[id]) {
        compute(id);
        release_operands(id);
      }
  }

  Expected take(ir::NodeId id) const { return {cells_[id]->array, cells_[id]->errors}; }

private:
  /// Counts readers and finds what need not be stored: an elementwise node or a view that is read
  /// once, by an elementwise node or a reduction, is computed as that goes along; so is a view that
  /// such a view reads. A product of matrices is a sum of products of views: it stores its result.
  /// What is computed along is at most so many nodes deep.
  void plan(std::span<const ir::NodeId> targets) {
    constexpr int kDeepest = 64;
    std::vector<int> depth(graph_.size(), 0);
    readers_.assign(graph_.size(), 0);
    within_reader_.assign(graph_.size(), false);
    std::vector<ir::NodeId> reader(graph_.size(), 0);
    std::vector<bool> stored(graph_.size(), false);
    for (ir::NodeId target : targets) {
      ensure(target < graph_.size(), "reference: no node {}", target);
      ++readers_[target];
      stored[target] = true;
    }
    for (ir::NodeId id = static_cast<ir::NodeId>(graph_.size()); id-- > 0;) {
      if (readers_[id] == 0)
        continue;
      if (const ir::NodeId by = reader[id];
          readers_[id] == 1 && !stored[id] && depth[by] < kDeepest) {
        const Op op = graph_[id].op, reading = graph_[by].op;
        within_reader_[id] = is_elementwise(reading) || info_of(reading).cls == OpClass::Reduce
                                 ? is_view(op) || is_elementwise(op)
                                 : is_view(op) && is_view(reading) && within_reader_[by];
        depth[id] = within_reader_[id] ? depth[by] + 1 : 0;
      }
      for (ir::NodeId operand : graph_[id].inputs) {
        ++readers_[operand];
        reader[operand] = id;
      }
    }
  }

  void release_operands(ir::NodeId id) {
    for (ir::NodeId operand : graph_[id].inputs)
      if (within_reader_[operand])
        release_operands(operand);
      else if (--readers_[operand] == 0)
        cells_[operand].reset();
  }

  ArrayView view_of(ir::NodeId id) const {
    if (!within_reader_[id])
      return whole(*cells_[id]);
    const ir::Node& node = graph_[id];
    return moved(node, view_of(node.inputs[0]), bindings_, bindings_.values_of(node.shape));
  }

  int add_op(ir::NodeId id, Terms& terms) const {
    const ir::Node& node = graph_[id];
    std::vector<int> args;
    for (ir::NodeId operand : node.inputs)
      args.push_back(add_value(operand, terms));
    return terms.add(node, graph_[node.inputs.back()].dtype, args);
  }

  int add_value(ir::NodeId id, Terms& terms) const {
    return within_reader_[id] && !is_view(graph_[id].op) ? add_op(id, terms)
                                                         : terms.add(view_of(id));
  }

  void compute(ir::NodeId id) {
    const ir::Node& node = graph_[id];
    Cells& result = cells_[id].emplace(node.dtype, bindings_.values_of(node.shape), errors_);
    if (node.op == Op::Input) {
      result.array = inputs_[static_cast<std::size_t>(node.attrs.slot)];
      return;
    }
    if (is_elementwise(node.op)) {
      Terms terms(result.dims(), errors_);
      add_op(id, terms);
      return eval_elementwise(terms, result);
    }
    if (info_of(node.op).cls == OpClass::Reduce) {
      const ir::Node& from = graph_[node.inputs[0]];
      Terms terms(bindings_.values_of(from.shape), errors_);
      add_value(node.inputs[0], terms);
      return eval_reduce(node, from.dtype, terms, result);
    }
    std::vector<const Cells*> operands;
    for (ir::NodeId operand : node.inputs)
      operands.push_back(&*cells_[operand]);
    switch (info_of(node.op).cls) {
    case OpClass::Source:
      return eval_source(node, result);
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
    default:
      throw InternalError("internal error: reference: an op of no class");
    }
  }

  const ir::Graph& graph_;
  std::span<const HostArray> inputs_;
  bool errors_;
  Bindings bindings_;
  std::vector<std::optional<Cells>> cells_;
  std::vector<int> readers_;        ///< by node, of those that are needed
  std::vector<bool> within_reader_; ///< by node: not stored
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
