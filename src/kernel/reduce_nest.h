// The loop nest of regions that reduce over one set of axes in one or several passes: columns, and
// pieces of rows and columns.
#pragma once

#include "kernel/accumulate.h"
#include "kernel/passes.h"
#include "kernel/program.h"
#include "kernel/staged_windows.h"

namespace egret::kernel {

/// How the nest is laid out. A tile is `points` places along a parallel axis, done together; each
/// is one point of the parallel axes or, with lanes on the parallel axis, a vector of them.
struct ReduceShape {
  bool lanes_parallel = false; ///< lanes lie along `tile_axis`; else along `inner_axis`
  int lanes = 1;
  int tile_axis = -1;     ///< parallel axis, -1 when there is none
  int inner_axis = 0;     ///< reduced axis of the innermost loop
  int points = 1;         ///< of a tile
  int copies = 1;         ///< accumulators a point and yield has along the inner axis
  int heavy_copies = 1;   ///< the same in passes with much arithmetic
  std::int64_t chunk = 1; ///< of the tile axis, what one worker does in a row
  std::int64_t pieces =
      1; ///< that split_axis is cut into, a fixed number; their results are combined in order
  int split_axis = -1;
  std::int64_t piece = 0; ///< iterations of split_axis in one piece
  double keep_flops = 12; ///< values that cost this much are kept from pass to pass
  CachePolicy store_policy = CachePolicy::Default;
  Arithmetic arithmetic;
  StagedWindows windows; ///< copied before they are read; of one piece with lanes on tile_axis only
};

KernelProgram lower_reduction(const Region& region, const Passes& passes, const ReduceShape& shape);

} // namespace egret::kernel
