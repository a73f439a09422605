// Contractions on GPUs of compute capability 9.0: one warp group brings tiles, by the copy engine
// or by asynchronous copies, the others multiply.
#pragma once

#include "kernel/generator.h"
#include "kernel/gpu_contraction_tiles.h"

#include "kernel/gpu_sums.h"

#include <functional>
#include <memory>
#include <span>
#include <string>

namespace egret::kernel {

/// Why the copy engine cannot bring a side; empty when it can. `panel`: elements of a tile along
/// the group.
std::string tensor_map_reason(const Region& region, const ContractionForm& form, const Side& side,
                              const AxisGroup& group, int panel);

/// The registers of a thread that a kernel must be launched with for products of `columns` by
/// wgmma: their accumulators, and what ptxas keeps beside them for operands, descriptors and
/// addresses (it says "Insufficient registers" with fewer, whatever the threads that multiply get
/// later).
constexpr int launch_registers_for(int columns) {
  return columns / 2 + 30;
}
/// The registers that each thread is launched with when `blocks` of `threads` share a
/// multiprocessor, in units of 8.
constexpr int launch_registers(int blocks, int threads) {
  return 65536 / blocks / threads / 8 * 8;
}

/// What takes a product's tiles where they are not stored.
class TileSums {
public:
  virtual ~TileSums() = default;
  /// Sums of 16 rows from `row` of the tile on, as matrix instructions leave them in a warp:
  /// `variables` are 8 columns each.
  virtual void take(const GpuTile& tile, const Expr& row, std::span<const VarId> variables) = 0;
  /// Behind all tiles of all blocks. All threads come here.
  virtual void finish() = 0;
};
using MakeTileSums = std::function<std::unique_ptr<TileSums>(Emitter&)>;

/// `sums`: of a product whose tiles are not stored; blocks wait for each other behind the last one.
Lowered lower_wgmma(const Region& region, const ContractionForm& form, const GpuTiles& tiles,
                    const Schedule& schedule, const MakeTileSums& sums = {});

} // namespace egret::kernel
