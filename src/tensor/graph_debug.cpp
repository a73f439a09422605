#include "tensor/graph_debug.h"

#include "compiler/search/machine.h"
#include "compiler/values/value_summary.h"
#include "compiler/views.h"
#include "runtime/profile.h"
#include "runtime/runtime.h"
#include "support/fail.h"
#include "tensor/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

namespace egret {
namespace detail {
namespace {

std::string type_of(const ir::Node& node) {
  return fmt::format("{}{}", name_of(node.dtype), to_string(node.shape));
}

/// What the machine can do, measured once for each device; 0 where kernels are interpreted.
compiler::Machine ceilings_of(backend::Device& device) {
  static std::mutex mutex;
  static std::map<std::string, compiler::Machine> measured;
  if (runtime::Runtime::instance().engine() != runtime::Engine::Compiled)
    return {};
  std::lock_guard lock(mutex);
  const auto found = measured.find(device.name());
  return found != measured.end()
             ? found->second
             : measured.emplace(device.name(), compiler::measure_machine(device)).first->second;
}

DebugReport empty_report() {
  const compiler::Machine machine = ceilings_of(runtime::Runtime::instance().device());
  DebugReport report;
  report.bytes_per_second = machine.bytes_per_second;
  report.flops_per_second = machine.flops_per_second;
  return report;
}

/// What runs before the first and the device's work may take longer than an operation itself.
constexpr int kRuns = 3;
constexpr double kLong = 0.1;

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

  DebugRun run() {
    DebugRun result;
    result.report = empty_report();
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
    backend::Device& device = runtime::Runtime::instance().device();
    device.synchronize();
    std::vector<runtime::StoragePtr> outputs;
    OpTrace trace;
    trace.seconds = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kRuns && (i == 0 || trace.seconds < kLong); ++i) {
      const auto begin = Clock::now();
      outputs = program->run(piece.inputs);
      device.synchronize();
      trace.seconds =
          std::min(trace.seconds, std::chrono::duration<double>(Clock::now() - begin).count());
    }
    for (const compiler::KernelReport& kernel : program->report().kernels) {
      trace.bytes += static_cast<double>(kernel.bytes_read + kernel.bytes_written);
      trace.flops += kernel.flops;
    }
    trace.op = info_of(node.op).name;
    trace.shape = type_of(node);
    for (ir::NodeId input : node.inputs)
      trace.inputs.push_back(type_of(graph_[input]));
    backend::reference::Dims dims;
    for (const Expr& dim : node.shape)
      dims.push_back(dim.value());
    backend::reference::HostArray array(node.dtype, std::move(dims));
    runtime::Runtime::instance().copy_out(array.bytes.data(), outputs[0], array.bytes.size());
    trace.summary = compiler::summary_of(array).text();
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

DebugRun run_op_by_op(const ir::Graph& graph, std::span<const runtime::RunInput> inputs) {
  return Runner(graph, inputs).run();
}

DebugRun run_kernel_by_kernel(const runtime::Program& program,
                              std::span<const runtime::RunInput> inputs) {
  DebugRun result;
  result.report = empty_report();
  const compiler::CompileReport& report = program.report();
  for (const compiler::KernelReport& kernel : report.kernels) {
    OpTrace& trace = result.report.ops.emplace_back();
    trace.op = kernel.name;
    trace.bytes = static_cast<double>(kernel.bytes_read + kernel.bytes_written);
    trace.flops = kernel.flops;
    trace.seconds = std::numeric_limits<double>::infinity();
  }
  bool look = false; // values are looked at once
  const auto see = [&, own = std::this_thread::get_id()](const runtime::LaunchRecord& launch) {
    // Another thread may run the same program, and longer than what is captured here lives.
    if (std::this_thread::get_id() != own)
      return;
    const std::less<const compiler::KernelReport*> before;
    const auto* begin = report.kernels.data();
    if (before(&launch.kernel, begin) || !before(&launch.kernel, begin + report.kernels.size()))
      return; // of another thread's program
    OpTrace& trace = result.report.ops[static_cast<std::size_t>(&launch.kernel - begin)];
    trace.seconds =
        std::min(trace.seconds, std::chrono::duration<double>(launch.end - launch.begin).count());
    if (!look)
      return;
    for (const ir::NodeId id : launch.values.operands)
      trace.inputs.push_back(type_of(report.graph[id]));
    for (std::size_t o = 0; o < launch.values.outputs.size(); ++o) {
      trace.shape += (o ? " " : "") + type_of(report.graph[launch.values.outputs[o]]);
      trace.summary += (o ? "; " : "") + compiler::summary_of(launch.stored(o)).text();
    }
  };
  const runtime::Observing observing({.launch = see});
  for (int i = 0; i < kRuns; ++i) {
    look = i + 1 == kRuns;
    result.outputs = program.run(inputs);
  }
  for (const OpTrace& trace : result.report.ops)
    result.report.seconds += trace.seconds;
  return result;
}

} // namespace detail

double DebugReport::of_ceiling(const OpTrace& op) const {
  if (bytes_per_second <= 0 || flops_per_second <= 0 || op.seconds <= 0)
    return 0;
  return std::max(op.bytes / bytes_per_second, op.flops / flops_per_second) / op.seconds;
}

DebugReport DebugReport::slowest_first() const {
  DebugReport sorted = *this;
  std::stable_sort(sorted.ops.begin(), sorted.ops.end(),
                   [](const OpTrace& a, const OpTrace& b) { return a.seconds > b.seconds; });
  return sorted;
}

std::string DebugReport::text() const {
  std::string text =
      fmt::format("{:>10} {:>7} {:>8} {:>8} {:>9}  {:<18} {:<16} {}\n", "us", "share", "GB/s",
                  "GFLOP/s", "of limit", "op", "result", "inputs | values");
  for (const OpTrace& op : ops) {
    std::string inputs;
    for (const std::string& input : op.inputs)
      inputs += (inputs.empty() ? "" : " ") + input;
    const double limit = of_ceiling(op);
    text += fmt::format("{:10.1f} {:5.1f} % {:8.2f} {:8.2f} {:>9}  {:<18} {:<16} {} | {}\n",
                        op.seconds * 1e6, seconds > 0 ? 100 * op.seconds / seconds : 0,
                        op.bytes / op.seconds * 1e-9, op.flops / op.seconds * 1e-9,
                        limit > 0 ? fmt::format("{:.1f} %", 100 * limit) : "-", op.op, op.shape,
                        inputs, op.summary);
  }
  text += fmt::format("{:10.1f}  total of {}", seconds * 1e6, ops.size());
  if (bytes_per_second > 0)
    text += fmt::format("; limits: {:.1f} GB/s, {:.1f} GFLOP/s", bytes_per_second * 1e-9,
                        flops_per_second * 1e-9);
  return text + "\n";
}

} // namespace egret
