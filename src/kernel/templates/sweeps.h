// Trees of a CPU's reductions over one set of axes, as sweeps over the reduced axes (passes.h).
#pragma once

#include "kernel/loops/tree.h"
#include "kernel/reduce_axes.h"
#include "kernel/templates/template.h"

namespace egret::kernel {

/// Stages whose bodies stand in a sweep, in order: its reductions, values that are kept for later
/// sweeps, and outputs.
std::vector<int> stages_of_sweep(const Region& region, const Passes& passes,
                                 const std::vector<Kept>& kept, int sweep);

/// Maps over the parallel axes alone that are stored before a sweep: as soon as it may read them,
/// those that nothing reads behind the last one (`sweep` = passes.count).
std::vector<int> results_before(const Region& region, const Passes& passes, int sweep);

/// How the sweeps lie in loops. A tile is a few points of a parallel axis that are done together:
/// single ones with lanes along the reduced axis, or vectors of them.
struct SweepShape {
  bool lanes_parallel = false; ///< lanes lie along `tile_axis`; else along `inner_axis`
  std::int64_t lanes = 1;
  int tile_axis = -1;            ///< -1: there is one point
  std::int64_t points = 1;       ///< of a tile; vectors of them where lanes lie along it
  std::int64_t apart = 1;        ///< points of the tile axis from lane to lane; divides `points`
  std::int64_t chunk = 1;        ///< elements of the tile axis that a thread does in a row
  int inner_axis = -1;           ///< reduced axis of the innermost loop
  std::int64_t copies = 1;       ///< of the body along the inner axis in an iteration
  std::int64_t accumulators = 1; ///< of a sum, which the copies take in rotation
  bool straight = false;         ///< the copies are all of the inner axis
  double keep = 0;               ///< additions of values that stay in scratch memory
  int prefetching = -1;          ///< the sweep that asks for the next tile; -1: none
  int split_axis = -1;           ///< reduced axis that is cut into parts; -1: none is
  std::int64_t part = 0;         ///< iterations of the split axis in each of them
  StagedOperands staged;         ///< operands that are copied; of a reduction that is not split
};

/// The shapes of the templates with lanes along the reduced axis and along a parallel one.
SweepShape row_shape(const Region& region, const ReduceAxes& axes, const Schedule& schedule,
                     const Target& target);
SweepShape column_shape(const Region& region, const ReduceAxes& axes, const Schedule& schedule,
                        const Target& target);

/// Whether lanes along the reduced axis take less time than along the parallel one; where estimates
/// are near each other, whether they read memory no worse.
bool prefers_rows(const Region& region, const ReduceAxes& axes, const Target& target);

/// Numbers of parts into which a reduction is cut that has too few tiles for several threads, the
/// likely best first; none where there are tiles enough or too little to sum. They follow from the
/// region alone, so that results do not depend on the number of threads.
std::vector<std::int64_t> numbers_of_parts(const Region& region, const ReduceAxes& axes,
                                           const SweepShape& shape);

/// The tree of a shape, split into so many parts if that are more than one, or why it cannot be.
Built built_sweeps(const Region& region, const ReduceAxes& axes, std::int64_t parts,
                   SweepShape shape);

} // namespace egret::kernel
