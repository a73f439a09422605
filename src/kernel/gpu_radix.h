// Radix sort on a GPU, least significant digit first and stable (Merrill and Grimshaw, "High
// Performance and Scalable Radix Sorting", 2011): ranks within a block's tile, rows that fit a
// tile, and rows of many tiles.
#pragma once

#include "kernel/builder.h"

#include <functional>
#include <vector>

namespace egret::kernel {

struct RadixShape {
  int threads = 256; ///< of a block
  int each = 16;     ///< elements of a thread
  int bits = 8;      ///< of a digit; there are no more digits than threads

  int digits() const { return 1 << bits; }
  int warps() const { return threads / 32; }
  std::int64_t tile() const { return std::int64_t(threads) * each; }
  int passes(int word_bits) const { return (word_bits + bits - 1) / bits; }
};

/// Bytes of shared memory for the ranks of a tile.
std::int64_t radix_shared_bytes(const RadixShape& shape);

/// The sum of the elements before each of `count` elements of an integer buffer from `first` on, by
/// the lanes of one warp; gives the sum of all. `then` takes each element's number and that sum.
ValueId scan_by_warp(ProgramBuilder& b, const Expr& lane, int buffer, const Expr& first,
                     const Expr& count, const Expr& extent,
                     const std::function<void(const Expr& at, ValueId before,
                                              const std::vector<Guard>& mask)>& then);

/// In which bits words differ, from the highest one down, while they are met: what lies above it
/// is the same in all of them, as in most keys of 64 bits, and needs no pass.
class DifferingBits {
public:
  DifferingBits(ProgramBuilder& b, DType word, int threads);
  /// Words of this thread, where the guards hold.
  void meet(ValueId word, const std::vector<Guard>& mask);
  /// All threads of the block come here.
  void join();
  /// Whether words differ in bit `shift` or above it.
  ValueId differ_from(ValueId shift) const;
  /// One of the words.
  ValueId least() const { return least_; }

private:
  ProgramBuilder& b_;
  DType word_;
  int threads_;
  VarId most_, most_inverted_;
  ValueId least_ = -1, bits_ = -1;
};

/// The ranks of a tile's elements by one digit. Element e of a thread is element place(e) of the
/// tile: a warp has neighbouring elements, and of these its lanes have neighbours. Each warp counts
/// the digits of its elements in counters of its own, in their order (warp-level multisplit,
/// Ashkiani, Davidson, Meyer and Owens 2016); scans over the warps and the digits make ranks of
/// that.
class TileRanks {
public:
  TileRanks(ProgramBuilder& b, const RadixShape& shape);

  Expr place(int e) const;
  /// The elements' digits, as i32, and where each exists. Gives the number of elements of the tile
  /// with a smaller digit, or the same and before it. All threads of the block come here, and they
  /// have met behind their last use of first_of().
  std::vector<ValueId> ranks(const std::vector<ValueId>& digits,
                             const std::vector<std::vector<Guard>>& masks);
  /// Counts the digits of any number of tiles: clear(), before() for each, then totals(), which
  /// gives the number of elements of each digit to one thread.
  void clear();
  std::vector<ValueId> before(const std::vector<ValueId>& digits,
                              const std::vector<std::vector<Guard>>& masks);
  void totals(const std::function<void(const Expr& digit, ValueId count,
                                       const std::vector<Guard>& mask)>& then);
  /// The rank of the first element with a digit, for all threads; digit = digits() gives the number
  /// of elements.
  ValueId first_of(const Expr& digit);

private:
  Expr counter_of(ValueId digit) const;
  std::vector<ValueId> counts();
  void scan();

  ProgramBuilder& b_;
  RadixShape s_;
  Expr thread_, warp_, lane_;
  int counters_, marks_; ///< by warp and digit
  int firsts_;           ///< by digit: its first rank; at the end, the number of elements
  int groups_;           ///< elements of the digits whose threads are of one warp
};

/// A tile whose elements are in the registers of its threads.
class TileSort {
public:
  TileSort(ProgramBuilder& b, const RadixShape& shape, DType word, DType position);

  /// Sorts the first `length` elements of the tile by `word_bits` bits. `load` gives word and
  /// position of an element, to be read under the guards.
  struct Element {
    ValueId word, position;
  };
  using Load = std::function<Element(const Expr& at, const std::vector<Guard>& mask)>;
  void sort(const Expr& length, int word_bits, const Load& load);
  /// The sorted elements up to `count` of them, threads beside each other having neighbours.
  using Take = std::function<void(const Expr& at, const Element&, const std::vector<Guard>& mask)>;
  void take(const Expr& length, const Expr& count, const Take& take);
  /// The sorted elements in shared memory, until others are sorted.
  int words() const { return words_; }
  int positions() const { return positions_; }

private:
  ProgramBuilder& b_;
  RadixShape s_;
  TileRanks ranks_;
  Expr thread_;
  DType word_, position_;
  int words_, positions_; ///< in shared memory
};

/// Rows of any length, each of many tiles, by all blocks together: for each digit the blocks count
/// the digits of their tiles, scan these counts, and move their elements; barriers of the grid
/// stand between.
class GridSort {
public:
  GridSort(ProgramBuilder& b, const RadixShape& shape, const Expr& rows, const Expr& length,
           DType word, DType position, int word_bits);

  using Word = std::function<ValueId(const Expr& row, const Expr& at, const std::vector<Guard>&)>;
  using Sink = std::function<void(const Expr& row, const Expr& place, ValueId word,
                                  ValueId position, const std::vector<Guard>& mask)>;
  /// `word` gives the key of an element, `sink` takes the sorted ones. `barrier` is one of the
  /// grid.
  void run(const Word& word, const Sink& sink, const std::function<void()>& barrier);
  /// Blocks that can be of use.
  Expr blocks() const { return rows_ * tiles_; }

private:
  struct Tile {
    Expr row, number;
    std::vector<Expr> at; ///< of this thread's elements
    std::vector<std::vector<Guard>> masks;
  };
  void each_tile(const std::function<void(const Tile&)>& body);
  std::vector<ValueId> words_of(const Tile& tile, const Expr& half);
  std::vector<ValueId> digits_of(const std::vector<ValueId>& words, const Expr& pass);
  void count(const Expr& pass, const Expr& half);
  void scan();
  void move(const Expr& pass, const Expr& half, const Sink& sink);

  ProgramBuilder& b_;
  RadixShape s_;
  TileRanks ranks_;
  Expr thread_, rows_, length_, tiles_;
  DType word_, position_;
  int word_bits_;
  int words_, positions_; ///< two copies each
  int counts_, totals_;   ///< by row, digit and tile; by row and digit
  int starts_;            ///< of the digits of a tile, in shared memory
};

} // namespace egret::kernel
