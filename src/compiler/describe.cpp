#include "compiler/describe.h"

#include "compiler/inlining.h"
#include "compiler/plan_memory.h"
#include "kernel/parts.h"
#include "kernel/phases.h"
#include "support/fail.h"
#include "support/hash.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace egret::compiler {

using ir::NodeId;

namespace {

std::int64_t upper_bytes(const Expr& e) {
  return e.upper();
}

void describe_kernels(const ir::Graph& graph, const kernel::Plan& plan,
                      const std::vector<Chain>& chains, const kernel::Target& target,
                      CompileReport& report) {
  const std::vector<double> predicted = predictions(
      plan.kernels, target,
      report.search.machine.launch_seconds > 0 ? report.search.machine : usual_machine(target));
  std::size_t chain = 0;
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    const kernel::Step& step = plan.steps[s];
    if (chain < chains.size() && chains[chain].first == static_cast<int>(s)) {
      const Chain& one = chains[chain++];
      report.chains.push_back(fmt::format(
          "one launch: kernels {} to {} as {}, {} blocks of {} threads, predicted {:.1f} us",
          report.kernels.size(), report.kernels.size() + static_cast<std::size_t>(one.count) - 1,
          one.program.name, one.program.launch.workers.str(), one.program.launch.threads,
          one.seconds * 1e6));
    }
    report.copies += step.kind == kernel::StepKind::Copy;
    if (step.kind != kernel::StepKind::Launch)
      continue;
    const kernel::KernelEntry& entry = plan.kernels[step.kernel];
    const kernel::Cost cost = kernel::cost_of(entry.region);
    KernelReport k;
    k.name = entry.region.name;
    k.form = name_of(kernel::classify(entry.region));
    k.schedule = kernel::to_string(entry.schedule);
    k.bytes_read = upper_bytes(cost.bytes_read);
    k.bytes_written = upper_bytes(cost.bytes_written);
    k.flops = static_cast<double>(upper_bytes(cost.flops));
    k.parts = static_cast<int>(kernel::parts_of(entry.region).size());
    k.phases = kernel::phases_of(entry.program);
    const auto number = static_cast<std::size_t>(step.kernel);
    k.predicted = predicted[number];
    if (number < report.search.regions.size()) // they are in the order of distinct kernels
      k.measured = report.search.regions[number].seconds;
    k.nodes = step.nodes;
    for (NodeId id : step.nodes)
      k.ops.emplace_back(info_of(graph[id].op).name);
    report.kernels.push_back(std::move(k));
  }
}

MemoryReport describe_memory(std::int64_t limit, const BuiltPlan& built,
                             const CompileReport& report) {
  MemoryReport memory{limit, built.plain_bytes, report.arena_bytes, {}, 0, 0, 0};
  std::map<int, std::size_t> first; // launch of each kernel
  std::map<std::size_t, int> again;
  for (std::size_t i = 0; i < built.order.size(); ++i) {
    const auto [it, fresh] = first.emplace(built.order[i], i);
    if (fresh)
      continue;
    const KernelReport& kernel = report.kernels[i];
    ++again[it->second];
    memory.added_bytes += kernel.bytes_read + kernel.bytes_written;
    memory.added_flops += kernel.flops;
    memory.added_seconds += kernel.predicted;
  }
  for (const auto& [kernel, times] : again)
    memory.again.push_back({kernel, times});
  return memory;
}

std::vector<std::string> describe_recomputed(const GraphFacts& facts,
                                             const std::vector<bool>& stored) {
  std::vector<std::string> lines;
  for (const Recomputed& r : recomputed_values(facts, stored)) {
    const ir::Node& node = facts.graph()[r.node];
    lines.push_back(fmt::format(
        "recomputed: %{} {}{}, of indices alone, by {} reader{}, {:.0f} additions an "
        "element, {:.0f} bytes not stored",
        r.node, name_of(node.dtype), to_string(node.shape), r.readers, r.readers == 1 ? "" : "s",
        r.flops, elements_of(node.shape) * static_cast<double>(size_of(node.dtype))));
  }
  return lines;
}

} // namespace

Compiled compiled_of(Compilation c, CompileReport report) {
  ensure(c.planned.has_value(), "a compilation without a plan has no result");
  const std::vector<BuiltRegion>& regions = c.parts.regions;
  Compiled result;
  result.plan = std::move(c.planned->plan);
  for (const int k : c.planned->order)
    result.launches.push_back({regions[static_cast<std::size_t>(k)].operands,
                               regions[static_cast<std::size_t>(k)].outputs});
  report.graph = c.candidate->graph();
  report.search = std::move(c.proposed.search);
  report.refused = std::move(c.proposed.refusals.list);
  report.claimed = std::move(c.claimed);
  result.plan.key = ir::canonical_hash(report.graph) ^ c.target.fingerprint;
  if (c.options.memory_limit)
    result.plan.key = combine(result.plan.key, static_cast<std::uint64_t>(*c.options.memory_limit));
  report.ops_normalized = report.graph.size();
  report.unfused = c.parts.partition.unfused;
  report.recomputed = describe_recomputed(c.candidate->facts(), c.parts.partition.stored);
  report.arena_bytes = upper_bytes(result.plan.arena_bytes);
  report.liveness_bound_bytes = upper_bytes(result.plan.liveness_bound_bytes);
  report.kernels_compiled = c.code.compiled;
  report.kernels_loaded = c.code.loaded;
  report.kernels_from_cache = c.code.cached;
  describe_kernels(report.graph, result.plan, c.chains, c.target, report);
  if (c.options.memory_limit)
    report.memory = describe_memory(*c.options.memory_limit, *c.planned, report);
  result.artifacts = std::move(c.code.artifacts);
  result.chains = std::move(c.chains);
  result.chain_artifacts = std::move(c.code.chains);
  result.report = std::move(report);
  return result;
}

} // namespace egret::compiler
