// Along which axes vectors of a CPU go in regions that reduce over one set of axes.
#pragma once

#include "kernel/passes.h"
#include "kernel/staged_windows.h"
#include "kernel/target.h"

namespace egret::kernel {

/// The axes of such a region; passes.reason says why it is none.
struct ReduceAxes {
  explicit ReduceAxes(const Region& region, Online online = Online::No);

  Passes passes;
  int reduced_axis = -1;  ///< best reduced axis for lanes, with its score
  int parallel_axis = -1; ///< best parallel axis for lanes; -1: none
  double reduced_score = 0, parallel_score = 0;
  bool argmax = false;
};

/// What a nest with lanes along the parallel axis reads from copies.
StagedWindows staged_windows_of(const Region& region, const ReduceAxes& axes, const Target& target);

/// Whether lanes along the reduced axis read memory no worse than along the parallel one.
bool prefers_rows(const ReduceAxes& axes, const Region& region, const Target& target);

} // namespace egret::kernel
