#include "tensor/graph_debug.h"

#include "compiler/views.h"
#include "runtime/runtime.h"
#include "support/fail.h"
#include "tensor/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <unordered_map>

namespace egret {
namespace detail {
namespace {

std::string type_of(const ir::Node& node) {
  return fmt::format("{}{}", name_of(node.dtype), to_string(node.shape));
}

// "min -1 mean 0.25 max 3, 0 nan, 0 inf"
std::string summary_of(const Tensor& value) {
  double least = std::numeric_limits<double>::infinity(), most = -least, total = 0;
  std::size_t nans = 0, infinities = 0, finite = 0;
  for (double v : value.to_vector<double>()) {
    if (std::isnan(v)) {
      ++nans;
      continue;
    }
    least = std::min(least, v);
    most = std::max(most, v);
    if (std::isinf(v)) {
      ++infinities;
      continue;
    }
    total += v;
    ++finite;
  }
  if (finite + infinities == 0)
    return fmt::format("no numbers, {} nan", nans);
  return fmt::format("min {:g} mean {:g} max {:g}, {} nan, {} inf", least,
                     finite ? total / static_cast<double>(finite) : 0.0, most, nans, infinities);
}

// Values by node while the graph runs. Views are not computed but go into their readers' programs,
// and so do products that are only there to be summed: they may not fit the memory.
class Runner {
public:
  Runner(const ir::Graph& graph, std::span<const runtime::RunInput> inputs)
      : graph_(graph), values_(graph.size()), readers_(graph.size()), summed_(graph.size(), false) {
    std::vector<ir::NodeId> reader(graph.size(), ir::kNoNode);
    for (ir::NodeId id : graph.outputs)
      ++readers_[id];
    for (ir::NodeId id = static_cast<ir::NodeId>(graph.size()); id-- > 0;)
      if (readers_[id] > 0)
        for (ir::NodeId input : graph[id].inputs) {
          ++readers_[input];
          reader[input] = id;
        }
    for (ir::NodeId id = 0; id < graph.size(); ++id)
      summed_[id] = is_elementwise(graph[id].op) && outgrows_operands(id) && is_reduced(id, reader);
    for (std::size_t slot = 0; slot < inputs.size(); ++slot)
      values_[graph.inputs()[slot]] = inputs[slot];
  }

  OpByOp run() {
    OpByOp result;
    for (ir::NodeId id = 0; id < graph_.size(); ++id) {
      const bool is_output =
          std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end();
      if (readers_[id] == 0 || (inlined(id) && !is_output))
        continue;
      result.report.ops.push_back(compute(id));
      result.report.seconds += result.report.ops.back().seconds;
    }
    for (ir::NodeId id : graph_.outputs)
      result.outputs.push_back(values_[id].storage);
    std::stable_sort(result.report.ops.begin(), result.report.ops.end(),
                     [](const OpTrace& a, const OpTrace& b) { return a.seconds > b.seconds; });
    return result;
  }

private:
  bool inlined(ir::NodeId id) const {
    return is_movement(graph_[id].op) || info_of(graph_[id].op).cls == OpClass::Source ||
           summed_[id];
  }
  // Whether it has more elements than any value that it is computed from.
  bool outgrows_operands(ir::NodeId id) const {
    const double own = compiler::elements_of(graph_[id].shape);
    return std::all_of(graph_[id].inputs.begin(), graph_[id].inputs.end(), [&](ir::NodeId from) {
      while (is_movement(graph_[from].op))
        from = graph_[from].inputs[0];
      return compiler::elements_of(graph_[from].shape) < own;
    });
  }
  // Whether one reduction, perhaps of a view, is all that reads it. `reader`: of each node, one.
  bool is_reduced(ir::NodeId id, const std::vector<ir::NodeId>& reader) const {
    while (readers_[id] == 1 && reader[id] != ir::kNoNode) {
      id = reader[id];
      if (!is_movement(graph_[id].op))
        return info_of(graph_[id].op).cls == OpClass::Reduce;
    }
    return false;
  }

  // The node with all views below it, over values that are known.
  struct Piece {
    ir::Graph graph;
    std::vector<runtime::RunInput> inputs;
    std::unordered_map<ir::NodeId, ir::NodeId> place;
  };
  ir::NodeId enter(Piece& piece, ir::NodeId id, bool top) {
    if (auto found = piece.place.find(id); found != piece.place.end())
      return found->second;
    const ir::Node& node = graph_[id];
    ir::NodeId here;
    if (node.op == Op::Input || (!top && !inlined(id)) || (!top && values_[id].storage)) {
      here = piece.graph.input(fmt::format("x{}", piece.inputs.size()), node.dtype, node.shape,
                               node.attrs.by_value);
      piece.inputs.push_back(values_[id]);
      piece.inputs.back().shape = &node.shape;
    } else {
      std::vector<ir::NodeId> inputs;
      for (ir::NodeId input : node.inputs)
        inputs.push_back(enter(piece, input, false));
      here = piece.graph.add(node.op, inputs, node.attrs);
    }
    piece.place.emplace(id, here);
    return here;
  }

  OpTrace compute(ir::NodeId id) {
    using Clock = std::chrono::steady_clock;
    const ir::Node& node = graph_[id];
    Piece piece;
    ir::NodeId top;
    if (node.op == Op::Input) // an output that is an input: a copy of it
      top = piece.graph.add(Op::StopGradient, std::vector<ir::NodeId>{enter(piece, id, false)});
    else
      top = enter(piece, id, true);
    piece.graph.outputs = {top};
    const auto program = runtime::Runtime::instance().program(piece.graph, {.lazy = true});
    const auto begin = Clock::now();
    auto outputs = program->run(piece.inputs);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();

    OpTrace trace;
    trace.op = info_of(node.op).name;
    trace.shape = type_of(node);
    trace.seconds = seconds;
    for (ir::NodeId input : node.inputs)
      trace.inputs.push_back(type_of(graph_[input]));
    trace.summary = summary_of(Access::wrap(data_node(node.dtype, node.shape, outputs[0])));
    values_[id].storage = std::move(outputs[0]);
    values_[id].shape = &node.shape;
    if (node.op != Op::Input)
      for (ir::NodeId input : node.inputs)
        release(input);
    return trace;
  }

  // One reader of a value is done; views pass that on to what they show.
  void release(ir::NodeId id) {
    if (--readers_[id] > 0)
      return;
    if (graph_[id].op != Op::Input)
      values_[id].storage = nullptr;
    if (inlined(id))
      for (ir::NodeId input : graph_[id].inputs)
        release(input);
  }

  const ir::Graph& graph_;
  std::vector<runtime::RunInput> values_;
  std::vector<int> readers_;
  std::vector<bool> summed_; ///< computed within the reduction that reads it
};

} // namespace

OpByOp run_op_by_op(const ir::Graph& graph, std::span<const runtime::RunInput> inputs) {
  return Runner(graph, inputs).run();
}

} // namespace detail

std::string DebugReport::text() const {
  std::string text =
      fmt::format("{:>10}  {:<14} {:<16} {}\n", "us", "op", "result", "inputs | values");
  for (const OpTrace& op : ops) {
    std::string inputs;
    for (const std::string& input : op.inputs)
      inputs += (inputs.empty() ? "" : " ") + input;
    text += fmt::format("{:10.1f}  {:<14} {:<16} {} | {}\n", op.seconds * 1e6, op.op, op.shape,
                        inputs, op.summary);
  }
  return text + fmt::format("{:10.1f}  total of {} operations\n", seconds * 1e6, ops.size());
}

} // namespace egret
