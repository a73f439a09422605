// Products whose right factor stays in a block's registers and shared memory, for the steps of a
// chain (chain.h) that multiply by the same matrix again and again: the recurrent cells of a loop
// over time. "Weight stationary" in the words of dataflow accelerators (Chen et al. 2016, Eyeriss).
#pragma once

#include "kernel/generator.h"
#include "kernel/region.h"
#include "kernel/target.h"

#include <cstdint>
#include <string>
#include <vector>

namespace egret::kernel {

/// A block has `rows` rows of the result and all columns; with `shares` > 1, so many blocks have
/// them together, each an equal range of the columns of each slice. `split` neighbouring threads
/// share the depth of a column, of all slices at a place. A thread holds `held` elements of the
/// right factor in registers and the others in shared memory.
struct StationaryTiles {
  std::int64_t rows = 1, shares = 1, split = 1, held = 0;
  int threads = 0;
  std::int64_t registers = 0, shared_bytes = 0; ///< of a thread for the factor; of a block
  /// Of one step, by a count of instructions and of the way to memory and back.
  double seconds = 0;
  double load_seconds = 0; ///< of the right factor, before the steps
};

/// What other products in the same kernel leave and ask for.
struct StationaryLimits {
  int threads = 0;                                          ///< of a block; 0: any
  std::int64_t rows = 0;                                    ///< of a block; 0: any
  std::int64_t shares = 1;                                  ///< StationaryTiles::shares
  std::int64_t taken_registers = 0, taken_shared_bytes = 0; ///< StationaryTiles of the others
};

/// The likely fastest tiles, or why there are none.
struct FoundStationary {
  bool ok = false;
  StationaryTiles tiles;
  std::string reason;
};
FoundStationary stationary_tiles(const Region& region, const Target& target,
                                 const StationaryLimits& limits = {});

/// A result that is the left factor of the next step, and the operand that the latter is.
struct CarriedRows {
  int operand = -1, output = -1;
};
/// Those that a region has: rows of the output have the form of the operand's.
std::vector<CarriedRows> carried_rows(const Region& region);

/// The symbol that stands for a step's number in a program with carried rows.
Expr stationary_turn();

/// The symbol that stands for a block's number among those that share the columns.
Expr stationary_share(std::int64_t shares);

/// A program whose statements before its last one, the loop over the blocks' rows, load the right
/// factor. Block n reads and writes elements of rows n * rows to (n + 1) * rows - 1 alone of all
/// that depends on the rows. With `carried`, for blocks that have all columns, the left factor is
/// read from memory in step 0 alone: it stays in shared memory, and each step writes that of the
/// next one there too.
Lowered stationary_program(const Region& region, const Target& target, const StationaryTiles& tiles,
                           const CarriedRows* carried = nullptr);

/// The region's axis along which blocks have their rows; -1: there is one row.
int stationary_rows(const Region& region);

} // namespace egret::kernel
