#include "compiler/bisect.h"

#include "backend/reference/random_inputs.h"
#include "backend/reference/reference.h"
#include "backend/reference/region_evaluator.h"
#include "compiler/plan_runner.h"
#include "egret/passes.h"
#include "saturate/saturate.h"
#include "support/fail.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <unordered_map>

namespace egret::compiler {

namespace reference = backend::reference;
using Culprit = BisectReport::Culprit;
using ir::NodeId;
using reference::Expected;
using reference::HostArray;

namespace {

/// What a graph's outputs are to be, and whether arrays or another graph's outputs are that.
class Wanted {
public:
  Wanted(const ir::Graph& graph, std::span<const HostArray> inputs, double scale)
      : inputs_(inputs), expected_(reference::expect(graph, inputs)), scale_(scale) {}

  /// The first output that is wrong; empty: none.
  std::string problem(std::span<const HostArray> outputs) const {
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const auto found = reference::compare(outputs[o], expected_[o], fmt::format("output {}", o),
                                            {.scale = scale_});
      if (!found.ok)
        return found.message;
    }
    return {};
  }
  std::string problem(const ir::Graph& graph) const {
    return problem(reference::execute(graph, inputs_));
  }
  std::int64_t elements() const {
    std::int64_t count = 0;
    for (const Expected& e : expected_)
      count += e.value.size();
    return count;
  }

private:
  std::span<const HostArray> inputs_;
  std::vector<Expected> expected_;
  double scale_;
};

/// Finds the rules that make the extracted graph wrong, by leaving out others as long as it stays
/// wrong.
class RuleBisection {
public:
  RuleBisection(const ir::Graph& simple, const saturate::SaturateOptions& options,
                const Wanted& wanted)
      : simple_(simple), options_(options), wanted_(wanted) {
    for (const saturate::Group& group : saturate::chosen_groups(options))
      for (const saturate::Rule& rule : group.rules)
        add(rule.name, group.name);
    for (const char* group : {saturate::kPull, saturate::kFold})
      add(group, group);
  }

  /// Empty when the graph is right, or is wrong without any rule.
  std::vector<std::string> run() {
    if (problem_with(all_).empty() || !problem_with({}).empty())
      return {};
    std::vector<std::string> needed = all_;
    for (std::size_t part = needed.size() / 2; part > 0; part /= 2)
      for (std::size_t at = 0; at < needed.size();) {
        std::vector<std::string> fewer = needed;
        const auto first = fewer.begin() + static_cast<std::ptrdiff_t>(at);
        fewer.erase(first, first + static_cast<std::ptrdiff_t>(std::min(part, fewer.size() - at)));
        if (problem_with(fewer).empty())
          at += part;
        else
          needed = std::move(fewer);
      }
    detail_ = problem_with(needed);
    for (std::string& name : needed)
      if (groups_.at(name) != name)
        name += fmt::format(" (group {})", groups_.at(name));
    return needed;
  }
  const std::string& detail() const { return detail_; }

private:
  void add(const std::string& rule, const std::string& group) {
    all_.push_back(rule);
    groups_.emplace(rule, group);
  }

  std::string problem_with(const std::vector<std::string>& rules) const {
    saturate::SaturateOptions options = options_;
    for (const std::string& rule : all_)
      if (std::ranges::find(rules, rule) == rules.end())
        options.without.push_back(rule);
    saturate::Saturated saturated(simple_, options);
    return wanted_.problem(saturated.extract().at(0));
  }

  const ir::Graph& simple_;
  const saturate::SaturateOptions& options_;
  const Wanted& wanted_;
  std::vector<std::string> all_;
  std::map<std::string, std::string> groups_; ///< of rules
  std::string detail_;
};

/// Looks at every value that a plan stores; all of the graph are right.
class PlanBisection final : public StepWatcher {
public:
  PlanBisection(const Compiled& compiled, std::span<const HostArray> inputs)
      : compiled_(compiled), plan_(compiled.plan), graph_(compiled.report.graph),
        bindings_(reference::bind_inputs(graph_, inputs)) {
    std::vector<NodeId> nodes;
    for (const LaunchValues& launch : compiled.launches)
      for (NodeId id : launch.outputs)
        nodes.push_back(id);
    auto expected = reference::expect(graph_, inputs, nodes);
    for (std::size_t i = 0; i < nodes.size(); ++i)
      expected_.emplace(nodes[i], std::move(expected[i]));
    for (const HostArray& input : inputs)
      inputs_.push_back(&input);
  }

  void before(std::size_t step, const PlanMemory& memory) override {
    if (plan_.steps[step].kind != kernel::StepKind::Launch)
      return;
    // Values that this step reads are as they were when they were stored.
    operands_.clear();
    const kernel::Region& region = entry(step).region;
    std::size_t pointer = 0;
    for (std::size_t i = 0; i < region.operands.size(); ++i) {
      const NodeId id = compiled_.launches[launch_].operands[i];
      if (region.operands[i].role == kernel::Role::Scalar) {
        operands_.push_back(*inputs_[static_cast<std::size_t>(graph_[id].attrs.slot)]);
        continue;
      }
      const std::int64_t offset = kernel::offset_of(plan_.steps[step], pointer);
      const int slot = plan_.steps[step].slots[pointer++];
      operands_.push_back(memory.read(slot));
      auto known = stored_.find(id);
      if (known != stored_.end() && known->second.bytes != operands_.back().bytes &&
          report_.culprit == Culprit::None)
        blame(Culprit::Plan, step,
              fmt::format("%{} has changed since it was stored, in memory slot {}", id, slot));
      auto& bytes = operands_.back().bytes;
      bytes.erase(bytes.begin(), bytes.begin() + offset); // the region's operand begins there
    }
    initial_.clear();
    for (std::size_t o = 0; o < region.outputs.size(); ++o)
      initial_.push_back(memory.read(plan_.steps[step].slots[pointer + o]));
    first_output_ = pointer;
  }

  bool after(std::size_t step, const PlanMemory& memory) override {
    if (report_.culprit != Culprit::None)
      return false;
    if (plan_.steps[step].kind != kernel::StepKind::Launch)
      return true;
    const std::vector<NodeId>& outputs = compiled_.launches[launch_++].outputs;
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      HostArray now = memory.read(plan_.steps[step].slots[first_output_ + o]);
      const Expected& wanted = expected_.at(outputs[o]);
      now.dims = wanted.value.dims;
      const auto found = reference::compare(now, wanted, fmt::format("%{}", outputs[o]));
      if (!found.ok) {
        blame(region_says(step, static_cast<int>(o), found.first, wanted) ? Culprit::Kernel
                                                                          : Culprit::Region,
              step, found.message);
        return false;
      }
      if (reference::judges_little(wanted)) {
        ++judged_by_operands_;
        if (std::string wrong = differs_from_region(step, static_cast<int>(o), now);
            !wrong.empty()) {
          blame(Culprit::Kernel, step, fmt::format("%{}: {}", outputs[o], wrong));
          return false;
        }
      }
      stored_[outputs[o]] = std::move(now);
    }
    return true;
  }

  const BisectReport& report() const { return report_; }
  /// Values whose tolerances said little.
  int judged_by_operands() const { return judged_by_operands_; }

private:
  const kernel::KernelEntry& entry(std::size_t step) const {
    return plan_.kernels[static_cast<std::size_t>(plan_.steps[step].kernel)];
  }

  void blame(Culprit culprit, std::size_t step, const std::string& detail) {
    report_.culprit = culprit;
    report_.names = {entry(step).region.name};
    if (culprit == Culprit::Kernel)
      report_.names.push_back(kernel::to_string(entry(step).schedule));
    report_.detail = detail;
    report_.nodes = plan_.steps[step].nodes;
  }

  // What the region makes of the operands as they are, by element of an output's memory.
  std::unordered_map<std::int64_t, reference::Estimate>
  values_of(std::size_t step, int output, const std::vector<std::int64_t>& elements) const {
    std::vector<const HostArray*> operands;
    for (const HostArray& operand : operands_)
      operands.push_back(&operand);
    reference::RegionEvaluator evaluator(entry(step).region, bindings_, operands);
    return evaluator.at_offsets(output, elements, &initial_[static_cast<std::size_t>(output)]);
  }

  // Whether the region gives the right value for an element.
  bool region_says(std::size_t step, int output, std::int64_t element,
                   const Expected& wanted) const {
    const auto values = values_of(step, output, {element});
    const auto found = values.find(element);
    return found != values.end() && reference::accepts(wanted.value.dtype, wanted.at(element),
                                                       found->second.value, {.scale = 2});
  }

  // The first of some elements of an output, evenly spaced, that is not what the region gives;
  // empty: none. A kernel's roundings count twice, as those of the reference do.
  std::string differs_from_region(std::size_t step, int output, const HostArray& now) const {
    constexpr std::int64_t kSamples = 64;
    std::vector<std::int64_t> elements;
    const std::int64_t size = now.size(), samples = std::min(size, kSamples);
    for (std::int64_t i = 0; i < samples; ++i)
      elements.push_back(i * size / samples);
    const auto values = values_of(step, output, elements);
    for (const std::int64_t element : elements) {
      const auto found = values.find(element);
      if (found == values.end() ||
          reference::accepts(now.dtype, found->second, now.at(element), {.scale = 4}))
        continue;
      return fmt::format("element {} of its memory is {}, but its operands make {} (tolerance "
                         "{:.3g})",
                         element, reference::text_of(now.dtype, now.at(element)),
                         reference::text_of(now.dtype, found->second.value),
                         4 * found->second.error);
    }
    return {};
  }

  const Compiled& compiled_;
  const kernel::Plan& plan_;
  const ir::Graph& graph_;
  reference::Bindings bindings_;
  std::vector<const HostArray*> inputs_; ///< by slot
  std::map<NodeId, Expected> expected_;
  std::map<NodeId, HostArray> stored_;
  std::vector<HostArray> operands_, initial_; ///< of the step at hand
  std::size_t launch_ = 0, first_output_ = 0;
  int judged_by_operands_ = 0;
  BisectReport report_;
};

} // namespace

const char* name_of(Culprit culprit) noexcept {
  switch (culprit) {
  case Culprit::Pass:
    return "pass";
  case Culprit::Rules:
    return "rules";
  case Culprit::Region:
    return "region";
  case Culprit::Kernel:
    return "kernel";
  case Culprit::Plan:
    return "plan";
  case Culprit::None:
    break;
  }
  return "none";
}

std::string BisectReport::text() const {
  if (culprit == Culprit::None)
    return fmt::format("all right: {}\n", detail);
  std::string who;
  switch (culprit) {
  case Culprit::Rules:
    who =
        fmt::format("{} {} make{} the result wrong", names.size() == 1 ? "rule" : "rules together",
                    fmt::join(names, ", "), names.size() == 1 ? "s" : "");
    break;
  case Culprit::Kernel:
    who =
        fmt::format("kernel {} with schedule `{}` does not compute its region", names[0], names[1]);
    break;
  case Culprit::Region:
    who = fmt::format("region {} is not what the graph says", names[0]);
    break;
  case Culprit::Plan:
    who = fmt::format("the plan gives kernel {} memory that was overwritten", names[0]);
    break;
  default:
    who = fmt::format("pass {} changes the result", names[0]);
  }
  return fmt::format("{}\n  {}\n", who, detail);
}

double tolerance_scale(saturate::Tags allowed) noexcept {
  return allowed.has(saturate::Tag::Reassociates) || allowed.has(saturate::Tag::Approximate) ? 16
                                                                                             : 1;
}

std::vector<HostArray> random_inputs(const ir::Graph& graph, std::uint64_t seed) {
  constexpr std::int64_t kUsual = 8;
  reference::RandomNumbers random(seed);
  reference::Bindings bindings;
  std::vector<HostArray> arrays;
  for (NodeId id : graph.inputs()) {
    const ir::Node& node = graph[id];
    for (const Expr& dim : node.shape)
      if (dim.is_symbol()) {
        const std::int64_t step = std::max<std::int64_t>(dim.divisor(), 1);
        const std::int64_t least = (dim.lower() + step - 1) / step * step;
        bindings.bind(dim, std::max(least, std::min(kUsual, dim.upper()) / step * step),
                      node.attrs.name);
      }
    const reference::Dims dims = bindings.values_of(node.shape);
    const auto refuse = [&] {
      fail(ErrorKind::Memory, "input '{}': {}[{}] is more than memory holds", node.attrs.name,
           name_of(node.dtype), fmt::join(dims, ","));
    };
    try {
      HostArray array(node.dtype, dims);
      array.bytes = reference::random_array(node.dtype, array.size(), 0, false, random).bytes;
      arrays.push_back(std::move(array));
    } catch (const std::bad_alloc&) {
      refuse();
    } catch (const std::length_error&) { // more than a vector can have
      refuse();
    }
  }
  return arrays;
}

BisectReport bisect(const ir::Graph& graph, std::span<const HostArray> inputs,
                    const Options& options, backend::Device& device, KernelCache& cache) {
  const saturate::SaturateOptions rules = options.chosen_rules();
  const Wanted wanted(graph, inputs, tolerance_scale(rules.allowed));
  const Compiled compiled = compile_graph(graph, options, device, cache);
  BisectReport report;
  if (std::string problem = wanted.problem(compiled.report.graph); !problem.empty()) {
    const ir::Graph simple = passes::normalize()(graph);
    report.culprit = Culprit::Pass;
    report.detail = std::move(problem);
    if (problem = wanted.problem(simple); !problem.empty()) {
      report.names = {"simplify"};
      return report;
    }
    if (options.effort.value_or(Effort::None) != Effort::None) {
      RuleBisection bisection(simple, rules, wanted);
      report.names = bisection.run();
      if (!report.names.empty()) {
        report.culprit = Culprit::Rules;
        report.detail = bisection.detail();
        return report;
      }
    }
    report.names = {"normalize"};
    return report;
  }
  PlanBisection watcher(compiled, inputs);
  std::vector<HostArray> arrays(inputs.begin(), inputs.end());
  const auto outputs = run_plan(compiled, graph, arrays, &device, &watcher);
  report = watcher.report();
  if (report.culprit != Culprit::None)
    return report;
  if (std::string problem = wanted.problem(outputs); !problem.empty()) {
    report.culprit = Culprit::Plan;
    report.names = {"of the last step"};
    report.detail = std::move(problem);
    return report;
  }
  report.detail = fmt::format("{} outputs, {} elements, {} kernels", outputs.size(),
                              wanted.elements(), compiled.launches.size());
  if (const int wide = watcher.judged_by_operands(); wide > 0)
    report.detail += fmt::format(
        "; {} values have wide tolerances and were compared with what their kernels' operands make",
        wide);
  return report;
}

} // namespace egret::compiler
