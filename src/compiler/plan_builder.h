// From kernels to a plan: the order of launches, the life of every value, its place in memory.
#pragma once

#include "compiler/output_spec.h"
#include "compiler/recompute.h"
#include "compiler/regions.h"
#include "kernel/plan.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace egret::compiler {

/// A kernel of the partition with the code that was chosen for it; `entry` is its place among the
/// distinct ones.
struct PlannedKernel {
  BuiltRegion built;
  int entry;
};

/// Lets a kernel whose output overwrites an input, which it reads itself, do so if every read is of
/// the very element that is written: it is declared as the output's alias, which generators honour.
/// To be called before programs are made of the regions.
void declare_overwritten_inputs(const ir::Graph& graph, std::vector<BuiltRegion>& regions,
                                const std::vector<OutputSpec>& outputs);

/// What is known of the kernels' costs and asked of the plan's memory.
struct PlanWishes {
  std::vector<double> seconds;       ///< of a launch, by entry
  std::optional<std::int64_t> limit; ///< bytes of the arena, at the largest sizes
  /// Launches, first and last, by number: what those between write shares memory with nothing else
  /// that they touch. Without a limit.
  std::vector<std::pair<int, int>> apart;
};

struct BuiltPlan {
  kernel::Plan plan;
  std::vector<int> order; ///< of launches, as places in `kernels`; some occur again under a limit
  std::int64_t plain_bytes = 0; ///< of the arena without a limit
};

/// `graph` is the prepared graph, `kernels` are in an order that respects reads, `outputs` tell
/// what becomes of each graph output.
std::variant<BuiltPlan, OverLimit> build_plan(const ir::Graph& graph,
                                              const std::vector<PlannedKernel>& kernels,
                                              std::vector<kernel::KernelEntry> entries,
                                              const std::vector<OutputSpec>& outputs,
                                              const PlanWishes& wishes);

} // namespace egret::compiler
