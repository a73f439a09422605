// Tiles of a product by fused multiply-adds on a GPU, and how long they take, by an estimate.
#pragma once

#include "kernel/gpu_contraction_tiles.h"

#include <vector>

namespace egret::kernel {

/// A product as it is shared out, and what an element of its sides costs on the way to shared
/// memory.
struct FmaProblem {
  std::int64_t rows, columns, depth, batch;
  /// Elements of a side that one asynchronous copy moves; 0: they go through registers.
  int left_copy = 1, right_copy = 1;
  bool has_shares = true; ///< blocks may share the depth of a tile
};

struct FmaChoice {
  GpuTiles tiles; ///< with the shares of the depth
  double cycles = 0;
};

/// Cycles of the whole product with such tiles, whose depth `tiles.split` blocks share.
double fma_cycles(const FmaProblem& problem, const GpuTiles& tiles, const Target& target);

/// The same of as many blocks a tile as take the least time.
FmaChoice with_best_split(const FmaProblem& problem, GpuTiles tiles, const Target& target);

/// Those worth trying, the likely best first. Where results are few, the warps of a block share the
/// depth of each step, and blocks that of a tile.
std::vector<FmaChoice> fma_choices(const FmaProblem& problem, const Target& target);

} // namespace egret::kernel
