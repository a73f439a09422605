// Sweeps over the reduced axes of a region (passes.h), for templates of reductions.
#pragma once

#include "kernel/passes.h"

namespace egret::kernel {

/// Stages whose bodies stand in a sweep, in order: its reductions, values that are kept for later
/// sweeps, and outputs.
std::vector<int> stages_of_sweep(const Region& region, const Passes& passes,
                                 const std::vector<Kept>& kept, int sweep);

/// Maps over the parallel axes alone that are stored before a sweep: as soon as it may read them,
/// those that nothing reads behind the last one (`sweep` = passes.count).
std::vector<int> results_before(const Region& region, const Passes& passes, int sweep);

} // namespace egret::kernel
