// Bytes that launches touch: ranges of memory, and the rows of a region's operands and results.
#pragma once

#include "egret/expr.h"
#include "egret/index_map.h"
#include "egret/op.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace egret::kernel {

struct Region;

/// Bytes of memory from the begin of some allocation.
struct MemoryRange {
  int base = -1; ///< which allocation
  std::int64_t offset = 0, bytes = 0;
  std::int64_t end() const { return offset + bytes; }
};

bool share_memory(const MemoryRange& a, const MemoryRange& b);

/// Ranges of memory, those that share some as one.
class MemoryRanges {
public:
  void add(const MemoryRange& range) { all_.push_back(range); }
  /// Joins what was added; comes before at().
  void close();
  /// Number of the first range that shares memory with the given one; -1: none does.
  int at(const MemoryRange& range) const;

private:
  std::vector<MemoryRange> all_;
};

/// Bytes `begin` to `end`, exclusive.
struct ByteInterval {
  std::int64_t begin = 0, end = 0;
};

/// What a region touches of an argument in row 0, and the bytes from one row to the next.
struct RowAccess {
  std::int64_t stride = 0;
  ByteInterval row;
};

/// How a region reads or writes elements: `offset` of `dtype`, over places in `axes` of the
/// region's, where the conditions hold.
struct ElementAccess {
  Expr offset;
  std::vector<int> axes;
  DType dtype = DType::F32;
  std::vector<Guard> conditions;
};

/// A row is `per_row` indices of the region's axis `rows`. Nothing where rows are not apart by a
/// constant.
std::optional<RowAccess> row_access(const Region& region, const ElementAccess& access, int rows,
                                    std::int64_t per_row = 1);

} // namespace egret::kernel
