// How long a GPU takes for sums across the contiguous axis, roughly, to rank the blocks that could
// make them.
#pragma once

#include "kernel/region.h"
#include "kernel/target.h"

#include <cstdint>

namespace egret::kernel {

/// Threads of a multiprocessor that blocks are for.
constexpr std::int64_t kThreadsOfColumns = 1024;

/// A block: bytes of a row of memory that its threads read side by side, all of its threads, and
/// those that share a column.
struct ColumnBlock {
  std::int64_t row, threads, down;
};

/// What there is at a point: arrays of the widest element that are read, and arithmetic for each of
/// its bytes.
struct ColumnWork {
  double arrays, flops;
};

std::int64_t widest_element(const Region& region);
/// `bytes`: of the widest element.
ColumnWork column_work(const Region& region, std::int64_t bytes);
/// Whether what is read at all points lies side by side along the axis.
bool reads_rows(const Region& region, int axis);

/// Clocks of the busiest multiprocessor for several passes over columns that its cache keeps: what
/// a block's threads wait for, one iteration after the other, or else what goes through it.
double column_passes_clocks(const ColumnBlock& block, std::int64_t tiles, std::int64_t depth,
                            int passes, const Target& target);

/// The same of one pass over memory whose blocks may share results. Memory is read as fast as it
/// goes, by what is left over for a few as fast as these can. Each iteration of a block waits for
/// its loads, and a multiprocessor looks up a line of its cache a clock. Threads of a result
/// combine what they have, several at a time; and the last block of each tile of columns waits for
/// the parts of the others. The constants are from measurements of sums of [1024,1024] to
/// [401408,64] on a GPU of 132 multiprocessors.
double column_sums_clocks(const ColumnBlock& block, const ColumnWork& work, std::int64_t tiles,
                          std::int64_t depth, std::int64_t parts, const Target& target);

} // namespace egret::kernel
