// Operands of which overlapping windows are read: copied once into memory near the worker, their
// holes filled, in the type of the arithmetic and with the lanes side by side, so that each point
// of a window is a plain load.
#pragma once

#include "kernel/emit.h"

#include <optional>
#include <vector>

namespace egret::kernel::loops {

/// What a load reads, over the region's axes (Expr::axis(number in Region::axes, extent)): the
/// offset in memory of a tensor whose index is not data; the holes are of one kind.
struct Access {
  Expr offset;
  std::vector<Guard> valid;
  Scalar fill;
  std::int64_t elements = 0; ///< of the operand; 0: not known
};
std::optional<Access> access_of(const Region& region, const Stage& stage, const Load& load);

/// The axes in an expression over those of a region.
std::vector<int> axes_in(const Expr& e);

/// What an access's offset, or such an expression, gains from one index of an axis to the next;
/// nothing where that is no constant.
std::optional<std::int64_t> slope(const Region& region, const Expr& e, int axis);

/// Points of a box, at most 2^40.
std::int64_t points_at_most(const Region& region, std::span<const int> axes);

/// One coordinate of a copy: `value`, affine in the region's axes, goes from `lower` over `extent`
/// numbers; `stride` elements of the operand lie between neighbours.
struct WindowCoordinate {
  Expr value;
  std::int64_t lower = 0, extent = 1, stride = 0;
};

struct StagedWindow {
  std::vector<WindowCoordinate> coordinates; ///< the lanes' last
  std::int64_t step = 1; ///< of the last coordinate from lane to lane: the copy has so many phases
  Expr base;             ///< of the offset: what the axes outside of the copy add
  std::vector<Guard> valid; ///< over the values of the coordinates and the axes outside
  /// Over the region's axes: where these fail, 0 is read. Conditions on axes inside along which the
  /// operand does not change, as of a weight that is used where there is data.
  std::vector<Guard> used_if;
  Scalar fill;
  std::int64_t elements() const;
  /// Where the copy holds the element of a point that sets all region axes, and whether it is used.
  Expr offset(const Point& point) const;
  std::vector<Guard> conditions(const Point& point) const;
  /// Points of the axes `inner` for each element; those on which the access does not depend do not
  /// count.
  bool overlaps(const Region& region, const Access& access, std::span<const int> inner,
                std::int64_t uses) const;
};

/// Points for each element of a window from which copying it pays.
inline constexpr std::int64_t kUsesOfWindow = 2;

/// The copy of an access for all points of the axes `inner`, lanes along one of them; nothing where
/// its index is no sum of coordinates that are affine in them.
std::optional<StagedWindow> window_over(const Region& region, const Access& access,
                                        std::span<const int> inner, int lanes_axis);

/// The access that all loads of an operand have in common, of stages over all axes; nothing where
/// they differ.
std::optional<Access> only_access(const Region& region, int operand);

/// Writes the code that copies the window of an operand to `buffer`, from element `place` on, at a
/// point of the axes outside. `shared`: all workers come by and share the making.
void copy_window(Emitter& emitter, int operand, const StagedWindow& window, int buffer,
                 const Expr& place, const Point& outside, int lanes, bool shared);

} // namespace egret::kernel::loops
