// Estimates of how long the ways of a scatter take on a GPU, in seconds of an H200: what orders the
// schedules of `gpu_scatter`. Fitted to bench/results/2026-11-29-gpu.md, "Scatters by estimate";
// rows() by the number of elements to 2026-11-30-sweep-h200.md.
#pragma once

#include "kernel/scatter_form.h"
#include "kernel/target.h"

#include <cstdint>

namespace egret::kernel {

/// Groups of blocks whose counters a thread adds up, and elements for which warps do.
inline constexpr std::int64_t kFewScatterGroups = 8, kMostScatteredByWarps = 1 << 16;

/// Updates by one index.
class UpdateTimes {
public:
  UpdateTimes(const ScatterForm& form, const Region& region, const Target& target);

  /// Counters of each thread: each clears those of its bins, makes its updates one after the other,
  /// and adds up what its block has of some bins; the grid adds up what groups of blocks have.
  /// `across`: threads along the columns; `bytes`: of a block's counters.
  double counters(int threads, int across, double groups, std::int64_t bytes) const;
  /// Two atomic operations a number, or one for a maximum: sectors of memory, which wait for each
  /// other where few bins have many updates. `by_update`: one index for all columns.
  double integers(bool by_update, Monoid monoid) const;
  /// Buckets of rows, which overflow where few bins have many updates.
  double rows() const;
  /// Updates partitioned by ranges of elements, each of which a block adds up in shared memory.
  double partitions() const;
  double sorted() const;
  /// Tables of `groups` blocks in shared memory, each of which is added to the output in the end.
  double tables(double groups, double elements) const;
  /// Atomic operations on the output itself.
  double atomics() const;
  /// The number of tables that take least time, or one for each multiprocessor where that is no
  /// more than twice as many.
  double best_groups(double elements) const;

private:
  double numbers() const { return updates_ * columns_; }
  double point() const; ///< of a multiprocessor, for an update's arithmetic

  double updates_, columns_, bins_, workers_, flops_, shared_bytes_;
};

/// Columns with indices of their own.
struct ColumnTimes {
  double threads; ///< a thread for each: an update waits for the one before it
  double warps;   ///< a warp for each: as many updates as it has lanes wait for those before them
  double others;  ///< ways that share out the updates: at the least, and for an update more
};
ColumnTimes column_times(const ScatterForm& form, const Target& target);

} // namespace egret::kernel
