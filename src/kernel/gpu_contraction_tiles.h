// Sizes of the tiles in which a GPU computes a contraction.
#pragma once

#include "kernel/contraction_form.h"
#include "kernel/schedule.h"
#include "kernel/target.h"

#include <string>
#include <vector>

namespace egret::kernel {

/// A warp group of those that only copy.
inline constexpr int kCopyThreads = 128;

/// What multiplies: each thread its own sums by fused multiply-adds, a warp fragments of 16 x 8 by
/// `mma`, or a group of four warps whole tiles by `wgmma`.
enum class GpuUnit : std::uint8_t { Fma, Mma, Wgmma };

/// A block computes tiles of bm rows by bn columns, one after the other, going along the depth in
/// steps of bk through a ring of `stages` pieces in shared memory. Its warps lie in a grid of
/// warps_m by warps_n over the tile; with wgmma, warps_m are groups of four warps.
struct GpuTiles {
  GpuUnit unit = GpuUnit::Fma;
  int bm = 64, bn = 64, bk = 16;
  int stages = 2;
  int warps_m = 2, warps_n = 2;
  int warps_k = 1;        ///< sets of such warps that share the depth of each piece of the ring
  std::int64_t group = 1; ///< tiles along the rows that are walked before the columns move on
  std::int64_t split = 1; ///< blocks that share the depth of one tile
  /// Stream-K: the tiles of the last wave of so many blocks are cut along the depth into as many
  /// shares of the same work; 0: they are not.
  std::int64_t shares = 0;
  bool staged = false; ///< results go through shared memory, to be stored in wide pieces
  int producers = 0;   ///< warp groups that only copy: the block's first threads
  /// Numbers of bf16 that each factor, of f32, is split into for wgmma; 0: it is not.
  int split_parts = 0;
  /// Ping-pong (CUTLASS's name of it): so many sets of consumers take whole tiles in turn, so that
  /// one multiplies while the other makes and stores the results of the tile before.
  int turns = 1;
  int consumer_threads() const {
    return (unit == GpuUnit::Wgmma ? 128 : 32 * warps_n) * warps_m * warps_k * turns;
  }
  int sum_threads() const { return consumer_threads() / warps_k; } ///< that have all of a tile
  int copy_threads() const { return kCopyThreads * producers; }
  int threads() const { return copy_threads() + consumer_threads(); }
};

/// Columns of one slice that lie side by side in a tile, so that every thread has the sums of all
/// slices at its places.
int slice_run(GpuUnit unit);

/// The sizes that a schedule asks for; `reason` is set when they do not fit together or are not for
/// this form or target.
struct FoundTiles {
  GpuTiles tiles;
  std::string reason;
};
FoundTiles gpu_tiles_of(const Schedule& schedule, const Region& region, const ContractionForm& form,
                        const Target& target);

/// Seconds that the likely best tile takes, about; with a form whose slices are columns like
/// others, those of the product without maps of its slices. Infinite: there is no tile.
double gpu_contraction_seconds(const Region& region, const ContractionForm& form,
                               const Target& target);

/// Schedules worth trying, the likely best first.
std::vector<Schedule> gpu_contraction_space(const Region& region, const ContractionForm& form,
                                            const Target& target);

} // namespace egret::kernel
