#include "compiler/plan_memory.h"

#include "compiler/search/candidates.h"
#include "compiler/search/cost_model.h"
#include "egret/error.h"
#include "kernel/generator.h"

#include <exception>
#include <utility>

namespace egret::compiler {

namespace {

using Entries = std::vector<kernel::KernelEntry>;

/// The same kernels, those that have a low-workspace variant as that; empty where none has.
Entries with_low_workspace(const Entries& entries, const kernel::Target& target,
                           Refusals& refusals) {
  Entries variants = entries;
  bool any = false;
  for (kernel::KernelEntry& entry : variants)
    if (std::optional<kernel::Chosen> chosen =
            kernel::lower_frugally(entry.region, entry.schedule, target)) {
      chosen->program.name = entry.region.name;
      const std::uint64_t hash = kernel::hash_of(chosen->program);
      if (refusals.refused(hash))
        continue;
      try {
        kernel::verify(chosen->program);
      } catch (const InternalError&) {
        refusals.drop(entry.region.name, chosen->schedule, hash, entry.schedule,
                      std::current_exception());
        continue;
      }
      entry.schedule = std::move(chosen->schedule);
      entry.program_hash = hash;
      entry.program = std::move(chosen->program);
      any = true;
    }
  return any ? variants : Entries{};
}

} // namespace

std::vector<double> predictions(const Entries& entries, const kernel::Target& target,
                                const Machine& machine) {
  std::vector<double> seconds;
  for (const kernel::KernelEntry& entry : entries)
    seconds.push_back(
        predict(entry.program, entry.region, target, machine, sizes_to_try(entry.region)));
  return seconds;
}

std::variant<BuiltPlan, OverLimit>
plan_memory(const ir::Graph& graph, const std::vector<PlannedKernel>& kernels,
            const Entries& entries, const std::vector<OutputSpec>& outputs,
            std::optional<std::int64_t> limit, const kernel::Target& target, Refusals& refusals,
            const std::vector<std::pair<int, int>>& apart) {
  if (!limit)
    return build_plan(graph, kernels, entries, outputs,
                      {std::vector<double>(entries.size(), 0), std::nullopt, apart});
  const auto build = [&](const Entries& some) {
    // A plan must not depend on what was measured, so round figures serve for what is recomputed.
    return build_plan(graph, kernels, some, outputs,
                      {predictions(some, target, usual_machine(target)), limit, {}});
  };
  std::variant<BuiltPlan, OverLimit> plan = build(entries);
  const auto* over = std::get_if<OverLimit>(&plan);
  if (!over)
    return plan;
  const Entries variants = with_low_workspace(entries, target, refusals);
  if (variants.empty())
    return plan;
  std::variant<BuiltPlan, OverLimit> smaller = build(variants);
  const auto* still = std::get_if<OverLimit>(&smaller);
  return still && still->least >= over->least ? plan : smaller;
}

} // namespace egret::compiler
