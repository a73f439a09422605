// Where code of a loop tree is being written, and the memory or registers for points that are gone
// through from there on.
#pragma once

#include "kernel/emit.h"
#include "kernel/loops/paths.h"

#include <map>
#include <span>
#include <stdexcept>

namespace egret::kernel::loops {

/// A tree that is legal and that no code is written for.
struct Cannot : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The loops that have been entered.
struct Here {
  Point point; ///< at: the sum of iteration * step over the loops entered; behind the last loop of
               ///< an axis that is its index
  std::map<const Tree*, Expr> digits; ///< iterations of those loops
  std::vector<bool> clip;             ///< by axis: points beyond its end are possible inside
  std::vector<Guard> terms;           ///< other terms change no sum
  bool shared = true;                 ///< all workers are here, and work is yet to be dealt out
  // On a GPU: of the threads that are here together, which all do the same.
  Expr thread = Expr(0);
  int width = 1;
  bool diverged = false; ///< others of their block may be elsewhere
};

/// Points of some axes, row-major.
struct Box {
  struct Side {
    int axis = 0;
    Expr base, size; ///< the index is from base to base + size
  };
  std::vector<Side> sides;

  Expr elements() const;
  Expr offset(const Point& point) const;
  /// The offsets along the sides of lane 0 and thread 0; nothing when they are no constants.
  std::optional<std::vector<std::int64_t>> key(const Point& point) const;
};

/// The points along `axes` that the loops around a body go through inside of `here`; the innermost
/// loop's axis is the last side.
Box box_of(const Region& region, const Path& path, std::span<const int> axes, const Here& here);

/// The loops along the axes around a body that have not been entered, but for single ones.
std::vector<const Tree*> loops_left(const Path& path, std::span<const int> axes, const Here& here);

/// An expression of lane 0; of thread 0.
Expr first_lane(const Expr& e);
Expr first_thread(const Expr& e);

Here enter(const Here& here, const Tree& loop, const Expr& digit);

} // namespace egret::kernel::loops
