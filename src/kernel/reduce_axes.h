// Along which axes vectors of a CPU go in regions that reduce over one set of axes.
#pragma once

#include "kernel/passes.h"
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

/// Operands that are worth a copy in sweeps with lanes along the parallel axis.
struct StagedOperands {
  std::vector<int> windows; ///< overlapping windows with conditions that differ from lane to lane,
                            ///< lanes apart, or conversions: copied by each thread,
  std::vector<int> inner;   ///< inside of which it goes along these parallel axes
  std::vector<int> once; ///< small ones whose lanes lie apart, such as the weights of a depthwise
                         ///< convolution: copied once, for all threads
  bool empty() const { return windows.empty() && once.empty(); }
};
StagedOperands staged_operands(const Region& region, const ReduceAxes& axes, const Target& target);
/// Those of one thread, which the order of additions follows: it is the same for any number.
StagedOperands staged_alone(const Region& region, const ReduceAxes& axes, Target target);

} // namespace egret::kernel
