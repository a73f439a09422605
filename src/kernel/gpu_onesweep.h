// Radix sort of long rows by blocks that wait for each other: Adinets and Merrill, "Onesweep: A
// Faster Least Significant Digit Radix Sort for GPUs" (2022). The digits of all passes are counted
// once; then each pass reads and writes an element once, unless all have one digit there, as the
// upper digits of small numbers, and a tile finds by decoupled look-back (Merrill and Garland,
// "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016) how many elements of each
// digit stand before it.
#pragma once

#include "kernel/gpu_radix.h"

namespace egret::kernel {

/// Bytes of shared memory that a sort needs.
std::int64_t onesweep_shared_bytes(const RadixShape& shape, DType word, DType position);

/// Rows of one known length. All blocks come to run() and are resident.
class OnesweepSort {
public:
  OnesweepSort(ProgramBuilder& b, const RadixShape& shape, std::int64_t rows, std::int64_t length,
               DType word, DType position, int word_bits);

  /// See GridSort::run.
  void run(const GridSort::Word& word, const GridSort::Sink& sink,
           const std::function<void()>& barrier);
  /// Blocks that can be of use.
  Expr blocks() const { return Expr(rows_ * tiles_); }

private:
  struct Tile {
    Expr row, number, length; ///< elements of the tile
    Expr memory;              ///< where its row begins
  };
  void count(const GridSort::Word& word);
  void total();
  ValueId needed(const Expr& row);
  struct PassBits {
    ValueId from, before;
  };
  PassBits bits_at(const Expr& pass, ValueId needed);
  std::vector<Guard> met_before(const Expr& pass);
  void pass(const Expr& pass, const GridSort::Sink& sink);
  void move(const Expr& pass, const Expr& row, const Expr& number, const Expr& from_half,
            const Expr& later, const GridSort::Sink& sink);
  void publish(const Expr& pass, const Tile& tile);
  void look_back(const Expr& pass, const Tile& tile);
  /// Stores in shared memory, by digit, the sum of counts [begin, end) and `more`'s.
  void sum(int counts, const Expr& begin, const Expr& end, std::int64_t extent, VarId sum);
  void join(VarId sum);
  void starts(const Expr& pass, const Tile& tile);
  std::vector<ValueId> digits_of(const std::vector<ValueId>& words, const Expr& pass);

  ProgramBuilder& b_;
  RadixShape s_;
  TileRanks ranks_;
  Expr thread_;
  std::int64_t rows_, length_, tiles_;
  std::int64_t group_, groups_; ///< tiles of a group, whose counts are summed for those behind it
  std::int64_t chunk_, chunks_; ///< tiles of a row whose digits a block counts together
  int passes_;
  ValueId needed_ = -1; ///< passes, where the row is one
  DType word_, position_;
  int words_, positions_;        ///< two copies each
  int histograms_, totals_;      ///< by row, pass, digit and chunk; by row, pass and digit
  int counts_, sums_;            ///< by row, tile and digit; by row, group and digit
  int tile_flags_, group_flags_; ///< by pass, row and tile; by pass, row and group
  int tile_end_, group_end_;
  // In shared memory
  int sorted_words_, sorted_positions_; ///< of a tile, in order of their digits
  int partial_;                         ///< sums of parts of the block's threads, by part and digit
  int starts_; ///< of the digits of a tile in the row, less their first rank in the tile
};

} // namespace egret::kernel
