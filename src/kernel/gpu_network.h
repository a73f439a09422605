// Sorts of short rows, and of the first few of any rows, on a GPU by networks whose items are in
// registers: Batcher's odd-even merge sort within a thread, bitonic merges over the lanes of a warp
// (Batcher, 1968).
#pragma once

#include "kernel/sort_items.h"
#include "kernel/target.h"

#include <vector>

namespace egret::kernel {

inline constexpr int kWarpLanes = 32;

/// Threads that hold a row: neighbours, or lanes of a warp between which lanes of other rows stand.
struct RowGroup {
  int threads = 128;   ///< of a block
  int lanes = 1;       ///< of a row: a power of two, of a warp or all threads of the block
  bool across = false; ///< lanes beside each other hold the same items of neighbouring rows

  int in_warp() const { return std::min(lanes, kWarpLanes); }
  int apart() const {
    return across && lanes < kWarpLanes ? kWarpLanes / lanes : 1;
  }                                            ///< lanes of a row
  int rows() const { return threads / lanes; } ///< of a block
  Expr lane() const;                           ///< of this thread in its row
  Expr row() const;                            ///< of this thread in its block
};

/// Whether rows lie across the memory of what is sorted, their elements not beside each other.
bool rows_lie_across(const Region& region, const SortForm& form);

/// Items in registers that loops change.
class HeldItems {
public:
  using Item = ItemWriter::Item;
  HeldItems(ProgramBuilder& b, const ItemType& type, const std::vector<Item>& items);
  void set(const std::vector<Item>& items);
  Item read(std::size_t item);
  std::vector<Item> read();

private:
  ProgramBuilder& b_;
  std::vector<VarId> words_, positions_;
};

/// Networks over the items that the lanes of a group hold. What lanes do is a loop over distances
/// between them, so that the code grows with a thread's items alone.
class LaneNetwork {
public:
  using Item = ItemWriter::Item;
  LaneNetwork(ProgramBuilder& b, ItemWriter& items, const RowGroup& group)
      : b_(b), items_(items), g_(group) {}

  /// The first `wanted` of this thread's items, sorted.
  void sort(std::vector<Item>& items, std::int64_t wanted);
  /// Sorted items of each thread, a power of two of them: those of all lanes of the row sorted,
  /// item i in lane i / size.
  void merge(std::vector<Item>& items);
  /// Of two sorted lists the first items, as many as `a` has, a power of two.
  void join(std::vector<Item>& a, const std::vector<Item>& b);
  /// Sorted lists of a power of two lanes, `apart` from each other: the first of all lists, in each
  /// of these lanes.
  void keep(std::vector<Item>& items, int lanes, int apart);

private:
  void clean(std::vector<Item>& items);
  ValueId number(std::int64_t value);
  Item other(const Item& item, ValueId mask);
  ValueId high(ValueId lanes);
  Item choose(const Item& own, const Item& other, ValueId high);

  ProgramBuilder& b_;
  ItemWriter& items_;
  RowGroup g_;
};

/// Comparisons of this thread, whose results the first `wanted` of `items` depend on.
std::vector<std::pair<int, int>> network_pairs(std::int64_t items, std::int64_t wanted);

/// Whole rows in registers: each lane holds `each` items, a power of two where lanes are several.
struct GpuNetworkShape {
  RowGroup group;
  int each = 1;
};
/// Why rows cannot be sorted so; empty when they can.
std::string network_refused(const SortForm& form, const GpuNetworkShape& shape);
KernelProgram gpu_sort_by_network(const Region& region, const SortForm& form,
                                  const GpuNetworkShape& shape);

/// The first few of each row: every thread keeps a sorted list of the best of its items, of which
/// it reads `each` at a time; the lists of the lanes are joined, then those of the warps, then
/// those of `slices` blocks of a row.
struct GpuListShape {
  RowGroup group;
  int each = 8;
  std::int64_t slices = 1;
};
std::string lists_refused(const SortForm& form, const GpuListShape& shape, const Target& target);
KernelProgram gpu_sort_by_lists(const Region& region, const SortForm& form,
                                const GpuListShape& shape);

/// Nanoseconds on the target, of a kernel whose rows are not few; only their ratios count.
double network_time(const SortForm& form, const GpuNetworkShape& shape, const Target& target);
double lists_time(const SortForm& form, const GpuListShape& shape, const Target& target);

} // namespace egret::kernel
