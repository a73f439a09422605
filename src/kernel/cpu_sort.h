// Sorts along one axis on a CPU: what the templates share.
#pragma once

#include "kernel/emit.h"
#include "kernel/sort_items.h"

#include <functional>

namespace egret::kernel {

/// The ways to sort.
enum class SortWay : std::uint8_t {
  Rows,    ///< a worker sorts whole rows by radix
  Slices,  ///< rows are few and long: workers count and move the digits of slices of them
  Insert,  ///< of long rows the first few: vectors of elements are compared with the last item
           ///< that is kept, and each better one is inserted
  Network, ///< a sorting network, whose vectors hold items of neighbouring short rows
  Filter,  ///< as Insert, but better ones are gathered until memory for them is full, which is
           ///< then sorted
};

/// Settings of a radix sort.
struct CpuRadixShape {
  int bits = 8;  ///< of a digit
  int lanes = 1; ///< of vectors of items
};

/// Least significant digit first, each digit by counting. The least item of a row is subtracted
/// before digits are taken, and digits above those of the largest difference are left out: the
/// passes follow the range of the keys, not their type. Rows that are in order need none.
class CpuRadix {
public:
  using Item = ItemWriter::Item;
  /// `elements`: of one of the two halves between which items move.
  CpuRadix(ProgramBuilder& b, ItemWriter& items, const CpuRadixShape& shape, const Expr& elements,
           const Expr& counts, bool shared);

  /// Items [begin, end) of a row whose items begin at `memory`, its counts at `counts`.
  struct Slice {
    Expr begin, end, memory, counts;
  };
  /// Unsigned words: what is added to an item so that the least one's key is 0, and the largest
  /// sum of these; 0 where the items are in order.
  struct Range {
    ValueId minus_least = -1, spread = -1;
  };
  std::int64_t passes() const;
  Expr digits() const { return Expr(std::int64_t{1} << s_.bits); }
  const ItemWriter::Memory& memory() const { return memory_; }

  /// Stores items in the first half as `element` gives them, of several lanes or of one.
  void fetch(const Slice& slice, const Expr& extent,
             const std::function<Item(const Expr& at, int lanes)>& element);
  /// The least and the largest item, and not 0 where one is less than the one before it.
  struct Bounds {
    ValueId least = -1, largest = -1, disorder = -1;
  };
  /// Of items in the first half; of items and those behind them.
  Bounds bounds(const Slice& slice, const Expr& extent);
  Bounds join(const Bounds& a, const Bounds& b);
  Range range(const Bounds& bounds);
  /// Calls `body` for each digit in which items may differ.
  void each_pass(const std::function<void(const Expr& pass)>& body);
  /// Whether a row's items may differ in the digit of this pass, or in a higher one.
  std::vector<Guard> needed(const Range& range, const Expr& pass);
  void count(const Slice& slice, const Range& range, const Expr& pass, const Expr& extent);
  /// Of each digit, in `slices` slices in order: how many items of the row stand before.
  void prefix(const Expr& counts, const Expr& slices);
  void move(const Slice& slice, const Range& range, const Expr& pass, const Expr& extent);
  /// Where the sorted items begin: in the half that the last pass wrote.
  Expr sorted(const Range& range);

  /// All of this for items that are in the first half, by one worker; gives sorted().
  Expr sort(const Slice& slice, const Range& range, const Expr& extent);

private:
  void each(const Expr& begin, const Expr& end, const Expr& extent,
            const std::function<void(const Expr&)>& body) {
    b_.loop(begin, end, Expr(1), extent, Bind::Serial, body);
  }
  /// [begin, end) in vectors, and the rest singly.
  void vectors(const Expr& begin, const Expr& end, const Expr& extent,
               const std::function<void(const Expr& at, int lanes)>& body);
  ValueId shift_of(const Expr& pass);
  Expr digit(ValueId word, const Range& range, ValueId shift);
  ValueId unsigned_word(ValueId word);
  DType bits_type() const { return items_.type().word == DType::I32 ? DType::U32 : DType::U64; }

  ProgramBuilder& b_;
  ItemWriter& items_;
  CpuRadixShape s_;
  int key_bits_; ///< of the words
  Expr elements_;
  ItemWriter::Memory memory_; ///< both halves
  int counts_;
};

/// Elements of a slice, and the most slices of a row.
inline constexpr std::int64_t kSliceLength = 1 << 14, kMostSlices = 64;
/// Elements that Filter looks at between two looks at the memory that they need.
inline constexpr std::int64_t kFiltered = 256;
/// Items that Filter gathers before it sorts them; a row must be longer.
std::int64_t filter_memory(std::int64_t kept);
/// Any way but Network; Insert and Filter need a known number of kept items and length.
KernelProgram sort_by_radix(const Region& region, const SortForm& form, SortWay way,
                            const CpuRadixShape& shape);

/// A sorting network over the rows of one vector, a row a lane: bitonic merges (Batcher, 1968) of
/// blocks that registers hold. Merges above the `kept` first items keep these only.
struct NetworkShape {
  std::int64_t length = 1, kept = 1;
  int lanes = 1; ///< rows beside each other
  int block = 8; ///< items of a row in registers
};
/// Comparisons of two vectors, and vectors that are loaded or stored for these.
struct NetworkWork {
  std::int64_t exchanges = 0, transfers = 0;
};
NetworkWork network_work(const NetworkShape& shape);
KernelProgram sort_by_network(const Region& region, const SortForm& form,
                              const NetworkShape& shape);
/// Of the rows' axes the one whose neighbours fill vectors best; -1: there is none.
int network_axis(const Region& region, const SortForm& form, int lanes);

} // namespace egret::kernel
