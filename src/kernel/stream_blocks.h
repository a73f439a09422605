// Sizes of the blocks in which a CPU goes through a stream.
#pragma once

#include "kernel/schedule.h"
#include "kernel/stream_form.h"
#include "kernel/target.h"

#include <string>
#include <vector>

namespace egret::kernel {

struct StreamBlocks {
  int lanes = 1;
  int mr = 1;     ///< rows that go through a tile together
  int nv = 1;     ///< vectors of places in a register tile of scores
  int nc = 1;     ///< vectors of columns in a register tile of a sum
  int rows = 1;   ///< of a block; a multiple of mr
  int places = 1; ///< of a tile; a multiple of nr()
  int unroll = 1;
  bool matrix = false; ///< products and sums by tiles of a matrix unit: lanes are 16, mr and places
                       ///< multiples of a tile's rows and depth
  int nr() const { return nv * lanes; }
};

/// Why a CPU does not take a stream; empty when it does.
std::string stream_refused(const StreamForm& form);
/// Whether all of its products and sums are made by tiles of the target's matrix unit (`form` of
/// StreamTakes::MatrixUnits): empty, or why not.
std::string stream_tiles_refused(const Region& region, const StreamForm& form,
                                 const Target& target);

/// Whether kernels of their own for a stream's products and sums, which multiply pairs of bf16, are
/// predicted to take less time on a CPU than the stream, which multiplies in f32.
bool stored_pairs_take_less(const Region& given, const Target& target);

/// What a schedule asks for, made fit for the region and the target; empty text, or why that is too
/// much.
StreamBlocks stream_blocks(const Schedule& schedule, const StreamForm& form, const Target& target);
std::string blocks_refused(const Schedule& schedule, const StreamBlocks& blocks,
                           const Target& target);

/// Schedules worth trying, the likely best first. `tiles`: also those of a matrix unit.
std::vector<Schedule> stream_space(const StreamForm& form, const Target& target, bool tiles);

} // namespace egret::kernel
