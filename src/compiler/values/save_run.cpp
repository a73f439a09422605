#include "compiler/values/save_run.h"

#include "backend/reference/compare.h"
#include "backend/reference/reference.h"
#include "compiler/plan_runner.h"
#include "compiler/record/origins.h"
#include "compiler/record/record.h"
#include "compiler/values/launch_piece.h"
#include "compiler/values/node_keys.h"
#include "support/fail.h"
#include "support/output_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

namespace egret::compiler {

namespace reference = backend::reference;
using ir::NodeId;
using reference::HostArray;

namespace {

std::string identity_of(const RunDescription& run, const ir::Graph& graph,
                        std::span<const HostArray> inputs, std::int64_t most_bytes,
                        const Compiled* compiled) {
  std::string text = fmt::format("{}\n{}\n{} {} {} {}\n", ir::print(graph), ir::print(run.graph),
                                 run.device, run.effort, run.fuse, most_bytes);
  for (const HostArray& input : inputs)
    text += fmt::format("{}{}\n", reference::to_string(input.dims), summary_of(input).hash.hex());
  if (compiled)
    for (const kernel::KernelEntry& entry : compiled->plan.kernels)
      text += fmt::format("{:x} {}\n", entry.program_hash, kernel::to_string(entry.schedule));
  return hash128(text).hex();
}

void add_inputs(SavedRunWriter& writer, const ir::Graph& graph, std::span<const HostArray> inputs) {
  for (const NodeId id : graph.inputs())
    if (!writer.has(id))
      writer.add(id, -1, inputs[static_cast<std::size_t>(graph[id].attrs.slot)]);
}

SavedCounts counts_of(const SavedRun& run, std::size_t kept) {
  SavedCounts counts{run.values.size(), 0, run.launches.size(), kept};
  for (const auto& [node, value] : run.values)
    counts.whole += value.whole;
  return counts;
}

/// Steps of a plan as launches with the slots of their operands and outputs.
class LaunchSteps {
public:
  explicit LaunchSteps(const Compiled& compiled) : compiled_(compiled) {}

  bool is_launch(std::size_t step) const {
    return compiled_.plan.steps[step].kind == kernel::StepKind::Launch;
  }
  const kernel::KernelEntry& entry(std::size_t step) const {
    return compiled_.plan.kernels[static_cast<std::size_t>(compiled_.plan.steps[step].kernel)];
  }
  /// By operand of the region; -1: a scalar, which is no slot.
  std::vector<int> operand_slots(std::size_t step) const {
    std::vector<int> slots;
    std::size_t pointer = 0;
    for (const auto& operand : entry(step).region.operands)
      slots.push_back(
          operand.role == kernel::Role::Scalar ? -1 : compiled_.plan.steps[step].slots[pointer++]);
    return slots;
  }
  std::vector<int> output_slots(std::size_t step) const {
    const auto& operands = entry(step).region.operands;
    const auto first = std::ranges::count_if(
        operands, [](const auto& operand) { return operand.role != kernel::Role::Scalar; });
    const auto& slots = compiled_.plan.steps[step].slots;
    const auto begin = slots.begin() + first;
    return {begin, begin + static_cast<std::ptrdiff_t>(entry(step).region.outputs.size())};
  }

private:
  const Compiled& compiled_;
};

class SavingRun final : public StepWatcher {
public:
  SavingRun(const TracedCompilation& traced, const reference::Bindings& bindings,
            SavedRunWriter& writer)
      : traced_(traced), bindings_(bindings), steps_(traced.compiled), writer_(writer) {}

  bool skip(std::size_t step, PlanMemory& memory) override {
    if (!steps_.is_launch(step))
      return false;
    const std::vector<NodeId>& nodes = traced_.compiled.launches[launch_].outputs;
    const std::vector<int> slots = steps_.output_slots(step);
    std::vector<HostArray> arrays;
    for (const NodeId id : nodes)
      if (auto array = writer_.kept(id);
          array && array->dims == bindings_.values_of(traced_.run.graph[id].shape))
        arrays.push_back(std::move(*array));
      else
        return false;
    for (std::size_t o = 0; o < slots.size(); ++o)
      memory.write(slots[o], arrays[o]);
    ++launch_;
    ++kept_;
    return true;
  }
  void before(std::size_t, const PlanMemory&) override {}
  bool after(std::size_t step, const PlanMemory& memory) override {
    if (!steps_.is_launch(step))
      return true;
    const std::vector<NodeId>& nodes = traced_.compiled.launches[launch_].outputs;
    const std::vector<int> slots = steps_.output_slots(step);
    for (std::size_t o = 0; o < nodes.size(); ++o) {
      if (writer_.has(nodes[o]))
        continue;
      HostArray array = memory.read(slots[o]);
      array.dims = bindings_.values_of(traced_.run.graph[nodes[o]].shape);
      writer_.add(nodes[o], static_cast<int>(launch_), array);
    }
    ++launch_;
    return true;
  }
  std::size_t kept() const { return kept_; }

private:
  const TracedCompilation& traced_;
  const reference::Bindings& bindings_;
  LaunchSteps steps_;
  SavedRunWriter& writer_;
  std::size_t launch_ = 0, kept_ = 0;
};

/// Which values are finite, and the operands of the launch at hand.
class NonFiniteSearch final : public StepWatcher {
public:
  NonFiniteSearch(const TracedCompilation& traced, std::span<const HostArray> inputs)
      : traced_(traced), graph_(traced.run.graph), inputs_(inputs),
        bindings_(reference::bind_inputs(graph_, inputs)), steps_(traced.compiled) {
    for (const NodeId id : graph_.inputs())
      if (first_nonfinite(input(id)) >= 0)
        nonfinite_.insert(id);
  }

  void before(std::size_t step, const PlanMemory& memory) override {
    if (!steps_.is_launch(step))
      return;
    operands_.clear();
    const std::vector<int> slots = steps_.operand_slots(step);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const NodeId id = launch().operands[i];
      HostArray array = slots[i] < 0 ? input(id) : memory.read(slots[i]);
      array.dims = bindings_.values_of(graph_[id].shape);
      operands_.insert_or_assign(id, std::move(array));
    }
  }
  bool after(std::size_t step, const PlanMemory& memory) override {
    if (!steps_.is_launch(step))
      return true;
    const std::vector<int> slots = steps_.output_slots(step);
    const bool clean =
        std::ranges::none_of(launch().operands, [&](NodeId id) { return nonfinite_.contains(id); });
    for (std::size_t o = 0; o < slots.size(); ++o) {
      HostArray array = memory.read(slots[o]);
      const std::int64_t element = first_nonfinite(array);
      if (element < 0)
        continue;
      const NodeId id = launch().outputs[o];
      nonfinite_.insert(id);
      array.dims = bindings_.values_of(graph_[id].shape);
      if (clean && !found_)
        found_ = explain(step, id, array, element);
    }
    ++launch_;
    return !found_;
  }
  const std::optional<NonFinite>& found() const { return found_; }

private:
  const SavedLaunch& launch() const { return traced_.run.launches[launch_]; }
  const HostArray& input(NodeId id) const {
    return inputs_[static_cast<std::size_t>(graph_[id].attrs.slot)];
  }

  /// Nothing where the values come from a constant of the graph that is not finite.
  std::optional<NonFinite> explain(std::size_t step, NodeId stored, const HostArray& array,
                                   std::int64_t element) const {
    NonFinite found;
    found.launch = launch_;
    found.kernel = steps_.entry(step).region.name;
    found.schedule = kernel::to_string(steps_.entry(step).schedule);
    const LaunchPiece piece = piece_of(graph_, launch().operands, launch().outputs);
    found.node = stored;
    found.element = fmt::format("element {} is {}", element_text(array.dims, element),
                                reference::text_of(array.dtype, array.at(element)));
    if (is_small(piece)) {
      const auto arrays = arrays_of(
          piece, launch().operands, [&](NodeId id) { return std::optional(operands_.at(id)); },
          [&](NodeId id) { return input(id).dims; });
      const Inside inside = look_inside(piece, *arrays);
      if (inside.node == ir::kNoNode && inside.constant)
        return std::nullopt;
      found.only_kernel = inside.node == ir::kNoNode;
      if (!found.only_kernel) {
        found.node = inside.node;
        found.element = inside.element;
      }
    }
    found.text = traced_.run.node_text(found.node);
    found.rules = traced_.run.origins[found.node].rules;
    return found;
  }

  struct Inside {
    NodeId node = ir::kNoNode; ///< the first that makes what is not finite of what is
    std::string element;
    bool constant = false; ///< a constant is not finite
  };
  Inside look_inside(const LaunchPiece& piece, std::span<const HostArray> inputs) const {
    std::vector<NodeId> all(piece.graph.size());
    for (NodeId id = 0; id < all.size(); ++id)
      all[id] = id;
    const std::vector<HostArray> values = reference::execute(piece.graph, inputs, all);
    std::vector<std::int64_t> nonfinite;
    for (const HostArray& value : values)
      nonfinite.push_back(first_nonfinite(value));
    // Of what leads to a result that is not finite.
    std::vector<bool> behind(values.size(), false);
    for (const NodeId id : piece.graph.outputs)
      behind[id] = nonfinite[id] >= 0;
    for (std::size_t id = values.size(); id-- > 0;)
      if (behind[id])
        for (const NodeId operand : piece.graph[static_cast<NodeId>(id)].inputs)
          behind[operand] = behind[operand] || nonfinite[operand] >= 0;
    Inside inside;
    for (NodeId id = 0; id < values.size(); ++id) {
      const ir::Node& node = piece.graph[id];
      const std::int64_t element = nonfinite[id];
      if (!behind[id] ||
          std::ranges::any_of(node.inputs, [&](NodeId operand) { return nonfinite[operand] >= 0; }))
        continue;
      if (info_of(node.op).cls == OpClass::Source) {
        inside.constant = true;
        continue;
      }
      inside.node = piece.nodes[id];
      inside.element =
          fmt::format("element {} is {}, of {}", element_text(values[id].dims, element),
                      reference::text_of(node.dtype, values[id].at(element)),
                      operands_text(node, values, values[id].dims, element));
      return inside;
    }
    return inside;
  }
  /// The elements that an elementwise operation reads, a summary of what others do.
  static std::string operands_text(const ir::Node& node, const std::vector<HostArray>& values,
                                   const reference::Dims& dims, std::int64_t element) {
    std::vector<std::string> texts;
    for (const NodeId operand : node.inputs) {
      const HostArray& array = values[operand];
      texts.push_back(is_elementwise(node.op) && array.dims == dims
                          ? reference::text_of(array.dtype, array.at(element))
                          : fmt::format("values with {}", summary_of(array).text()));
    }
    return fmt::format("{}", fmt::join(texts, " and "));
  }

  const TracedCompilation& traced_;
  const ir::Graph& graph_;
  std::span<const HostArray> inputs_;
  reference::Bindings bindings_;
  LaunchSteps steps_;
  std::set<NodeId> nonfinite_;
  std::map<NodeId, HostArray> operands_; ///< of the launch at hand
  std::size_t launch_ = 0;
  std::optional<NonFinite> found_;
};

} // namespace

TracedCompilation compile_traced(const ir::Graph& graph, const GraphSource& source,
                                 const Options& options, backend::Device& device,
                                 KernelCache& cache) {
  TracedCompilation traced;
  RecordWriter writer([&](std::string_view line) { traced.record.emplace_back(line); });
  if (!source.lines.empty())
    writer.source(source.file, source.text, ir::canonical_hash(graph), source.lines);
  const auto program = writer.program(graph, device.name(), options);
  Options shown = options;
  shown.after_pass = [&](const PassEvent& event) {
    program->pass(event);
    if (options.after_pass)
      options.after_pass(event);
  };
  traced.compiled = compile_graph(graph, shown, device, cache);
  program->finished(traced.compiled.report);
  writer.end();

  RunDescription& run = traced.run;
  run.file = source.file;
  run.program = fmt::format("{:016x}", typeless_key(graph));
  run.device = device.name();
  run.effort = egret::name_of(options.effort.value_or(Effort::None));
  run.fuse = options.fuse;
  run.graph = traced.compiled.report.graph;
  run.origins = origins_of_record(traced.record, run.graph.size());
  std::size_t launch = 0;
  for (const kernel::Step& step : traced.compiled.plan.steps) {
    if (step.kind != kernel::StepKind::Launch)
      continue;
    const auto& entry = traced.compiled.plan.kernels[static_cast<std::size_t>(step.kernel)];
    const LaunchValues& values = traced.compiled.launches[launch++];
    run.launches.push_back(
        {entry.region.name, kernel::to_string(entry.schedule), values.operands, values.outputs});
  }
  return traced;
}

SavedCounts save_run(const TracedCompilation& traced, const ir::Graph& graph,
                     std::span<const HostArray> inputs, backend::Device* device,
                     const std::filesystem::path& folder, const SaveOptions& options,
                     std::vector<HostArray>* outputs) {
  RunDescription run = traced.run;
  run.identity = identity_of(run, graph, inputs, options.most_bytes, &traced.compiled);
  SavedRunWriter writer(folder, std::move(run), options.most_bytes);
  write_output("values", folder / "record.jsonl",
               fmt::format("{}\n", fmt::join(traced.record, "\n")));
  add_inputs(writer, traced.run.graph, inputs);
  const reference::Bindings bindings = reference::bind_inputs(traced.run.graph, inputs);
  SavingRun watcher(traced, bindings, writer);
  std::vector<HostArray> arrays(inputs.begin(), inputs.end());
  auto results = run_plan(traced.compiled, graph, arrays, device, &watcher);
  writer.finish();
  if (outputs)
    *outputs = std::move(results);
  return counts_of(writer.run(), watcher.kept());
}

SavedCounts save_reference_run(const ir::Graph& graph, const GraphSource& source,
                               std::span<const HostArray> inputs,
                               const std::filesystem::path& folder, const SaveOptions& options,
                               std::vector<HostArray>* outputs) {
  RunDescription run;
  run.file = source.file;
  run.program = fmt::format("{:016x}", typeless_key(graph));
  run.device = "reference";
  run.effort = egret::name_of(Effort::None);
  run.fuse = false;
  run.graph = graph;
  run.origins.resize(graph.size());
  std::vector<NodeId> nodes;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (id < source.lines.size())
      run.origins[id].lines = {source.lines[id]};
    if (graph[id].op == Op::Input)
      continue;
    nodes.push_back(id);
    run.launches.push_back(
        {std::string(info_of(graph[id].op).name), "reference", graph[id].inputs, {id}});
  }
  run.identity = identity_of(run, graph, inputs, options.most_bytes, nullptr);
  SavedRunWriter writer(folder, std::move(run), options.most_bytes);
  add_inputs(writer, graph, inputs);
  const std::vector<HostArray> values = reference::execute(graph, inputs, nodes);
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (!writer.has(nodes[i]))
      writer.add(nodes[i], static_cast<int>(i), values[i]);
  writer.finish();
  if (outputs)
    *outputs = reference::execute(graph, inputs);
  return counts_of(writer.run(), 0);
}

std::string NonFinite::message() const {
  std::string text = fmt::format("{}\n  {}\n", this->text, element);
  text += only_kernel ? fmt::format("  launch {}, kernel {} with schedule `{}`, stores it; by the "
                                    "reference all is finite\n",
                                    launch, kernel, schedule)
                      : fmt::format("  in launch {}, kernel {}, whose operands are finite\n",
                                    launch, kernel);
  if (!rules.empty())
    text += fmt::format("  made by rules: {}\n", fmt::join(rules, ", "));
  return text;
}

std::optional<NonFinite> find_nonfinite(const TracedCompilation& traced, const ir::Graph& graph,
                                        std::span<const HostArray> inputs,
                                        backend::Device* device) {
  NonFiniteSearch watcher(traced, inputs);
  std::vector<HostArray> arrays(inputs.begin(), inputs.end());
  run_plan(traced.compiled, graph, arrays, device, &watcher);
  return watcher.found();
}

} // namespace egret::compiler
