// The order of launches and the memory of a plan, within a limit where there is one.
#pragma once

#include "compiler/plan_builder.h"
#include "compiler/refusals.h"
#include "compiler/search/machine.h"
#include "kernel/target.h"

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

namespace egret::compiler {

/// Seconds of a launch of each kernel, by the cost model.
std::vector<double> predictions(const std::vector<kernel::KernelEntry>& entries,
                                const kernel::Target& target, const Machine& machine);

/// build_plan() with `limit` bytes for the arena. Where the kernels as they are do not meet the
/// limit, by order and recomputation (recompute.h), low-workspace variants of them are tried,
/// except for those that `refusals` has or that do not pass verification. Without a limit there
/// always is a plan.
std::variant<BuiltPlan, OverLimit>
plan_memory(const ir::Graph& graph, const std::vector<PlannedKernel>& kernels,
            const std::vector<kernel::KernelEntry>& entries, const std::vector<OutputSpec>& outputs,
            std::optional<std::int64_t> limit, const kernel::Target& target, Refusals& refusals,
            const std::vector<std::pair<int, int>>& apart = {});

} // namespace egret::compiler
