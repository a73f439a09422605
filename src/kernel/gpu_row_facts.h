// What a GPU's generator of rows asks of a region: its passes, which axis vectors run along, what
// of a row is worth keeping, and how rows lie in memory.
#pragma once

#include "kernel/passes.h"
#include "kernel/region.h"
#include "kernel/target.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace egret::kernel {

/// What decides the form of a schedule.
struct RowFacts {
  Passes passes;
  int inner = -1; ///< reduced axis of the vectors
  std::int64_t score = 0;
  bool argmax = false;

  /// `online`: sums go along with the maxima that scale them.
  explicit RowFacts(const Region& region, Online online = Online::No);

  /// Vectors of `lanes` in a row; those of a shifted row begin where memory is aligned, up to a
  /// vector before it does.
  Expr vectors(const Region& region, int lanes, bool shifted = false) const;

  /// Whether threads along `inner` touch no more memory than threads along any parallel axis would.
  bool suits(const Region& region, const Target& target) const;
};

/// One sum of very much along several axes, whose operands lie side by side along different ones:
/// blocks make parts of it (templates/generic.cpp).
bool is_one_long_sum(const Region& region, const Target& target);

/// Bytes of memory that a warp touches for each point of all axes with its threads along `axis`, in
/// sectors: a whole one for each element that lies apart from its neighbours.
std::int64_t bytes_touched(const Region& region, int axis);

/// Whether some operand is read along the rows and is the same for all of them.
bool reads_weights(const Region& region, const RowFacts& f);

/// Values of 32 bits of a row that a thread of a block may keep: half of its share of the
/// registers, as the others are for what is made of the elements.
std::int64_t kept_elements(std::int64_t threads, const Target& target);

/// Lanes of vectors that lie aligned in memory although rows begin anywhere: they are shifted
/// against the row by as much, and have lanes outside of it at its ends. 1 when the accesses along
/// the rows do not begin alike, or there is no such need.
struct Shifted {
  int lanes = 1;
  Expr start = Expr(0); ///< of a row, over the region's axes
};
Shifted shifted_rows(const Region& region, const RowFacts& f, const Target& target);

struct RowLoad {
  const Stage* stage;
  const Load* load;
};

/// What the first pass reads along the rows, of each row something else, and others may read again:
/// every element once. With `lanes`, what asynchronous copies can move in vectors of so many.
std::vector<RowLoad> row_loads(const Region& region, const RowFacts& f, int lanes = 0);

} // namespace egret::kernel
