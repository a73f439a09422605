// Operands of which a nest reads overlapping windows, or whose lanes lie apart: copied once into
// memory near the worker, their holes filled, in the type of the arithmetic and with the lanes side
// by side, so that each point of a window is a plain load.
#pragma once

#include "kernel/emit.h"
#include "kernel/passes.h"

#include <vector>

namespace egret::kernel {

/// One coordinate of a copy: `value`, affine in the region's axes (Expr::axis(number in
/// Region::axes, extent)), goes from `lower` over `extent` numbers; `stride` elements of the
/// operand lie between neighbours.
struct WindowPlace {
  Expr value;
  std::int64_t lower = 0, extent = 1, stride = 0;
};

struct StagedWindow {
  /// A load that reads the copy: stage, and number in Stage::loads. All of the operand's loads do,
  /// and have one map.
  struct Reader {
    int stage, load;
  };
  std::vector<Reader> readers;
  int operand = 0;
  std::vector<WindowPlace> places; ///< the lanes' last
  std::int64_t step = 1;    ///< of the last place from lane to lane: the copy has so many phases
  Expr base;                ///< of the offset: what the axes outside of the copy add
  std::vector<Guard> valid; ///< over the values of the places and the axes outside
  Scalar fill;
  bool whole = false; ///< the same for all points: made once, for all workers
  std::int64_t elements() const;
  /// Where the copy holds the element of a point that sets all region axes.
  Expr offset(const Point& point) const;
};

struct StagedWindows {
  std::vector<StagedWindow> list;
  std::vector<int> inner; ///< parallel axes that copies contain: loops inside of the copying
  bool empty() const { return list.empty(); }
};

/// What is worth a copy in a nest with lanes along `lanes_axis` over these passes: it is read
/// several times, and its loads would have conditions that differ from lane to lane, lanes apart,
/// or conversions. Copies have `most_bytes` altogether and leave `tasks` pieces of work at least.
StagedWindows find_staged_windows(const Region& region, const Passes& passes, int lanes_axis,
                                  std::int64_t most_bytes, std::int64_t tasks);

/// Writes the code that makes the copy in `buffer` at a point of the axes outside; all workers
/// share the making of one for all.
void copy_window(Emitter& emitter, const StagedWindow& window, int buffer, const Point& outside,
                 int lanes);

} // namespace egret::kernel
