// From kernels to a plan: the order of launches, the life of every value, its place in memory.
#pragma once

#include "compiler/regions.h"
#include "kernel/generator.h"

namespace egret::compiler {

/// A kernel of the partition with the code that was chosen for it; `entry` is its place among the
/// distinct ones.
struct PlannedKernel {
  BuiltRegion built;
  int entry;
};

/// Lets a kernel that makes the new value of a state overwrite the old one, which it reads itself,
/// if every read is of the very element that is written: it is declared as the output's alias,
/// which generators honour. To be called before programs are made of the regions.
void declare_states_in_place(const ir::Graph& graph, std::vector<BuiltRegion>& regions,
                             const std::vector<OutputSpec>& outputs);

/// `graph` is the prepared graph, `kernels` are in an order that respects reads, `outputs` tell
/// what becomes of each graph output. `order` becomes the order in which they are launched.
kernel::Plan build_plan(const ir::Graph& graph, const std::vector<PlannedKernel>& kernels,
                        std::vector<kernel::KernelEntry> entries,
                        const std::vector<OutputSpec>& outputs, std::vector<int>& order);

/// Gives every arena slot an offset such that slots that live at the same time do not overlap;
/// `same_as[i]` >= 0 puts slot i where that slot is. Fills arena_bytes and liveness_bound_bytes.
void place_slots(kernel::Plan& plan, const std::vector<int>& same_as);

} // namespace egret::compiler
