// Element-wise kernels in the steps of a chain (chain.h): each block computes the rows that it has
// in all kernels of all steps.
#pragma once

#include "kernel/gpu_stationary.h"
#include "kernel/region.h"

#include <cstdint>
#include <optional>

namespace egret::kernel {

/// Row r of such a region: indices r * per_row to (r + 1) * per_row - 1 of an axis, and all of the
/// others.
struct RowMap {
  int axis = -1;
  std::int64_t per_row = 1;
  std::int64_t points = 0; ///< of a row
};

/// The region as so many rows, if it is maps only and one of its axes has so many parts.
std::optional<RowMap> find_row_map(const Region& region, std::int64_t rows);

/// Whether a block's threads have few enough points of the rows.
bool fits(const RowMap& map, const StationaryTiles& tiles);

/// A program whose last statement is the loop over the blocks' rows, as that of a
/// stationary_program(); block n has rows n * tiles.rows and so on, of which each of tiles.shares
/// blocks computes an equal part.
KernelProgram row_map_program(const Region& region, const RowMap& map, std::int64_t rows,
                              const StationaryTiles& tiles);

/// Of a step, predicted.
double row_map_seconds(const RowMap& map, const StationaryTiles& tiles);

} // namespace egret::kernel
