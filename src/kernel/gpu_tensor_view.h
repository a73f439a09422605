// Sides of products as the copy engine of compute capability 9.0 sees them.
#pragma once

#include "kernel/contraction_form.h"
#include "kernel/emit.h"
#include "kernel/program.h"

#include <string>
#include <utility>
#include <vector>

namespace egret::kernel {

/// Elements of two bytes in a row of the swizzled order.
inline constexpr int kSwizzledRow = 64;

/// One side as the copy engine sees it: affine in its axes, neighbours along the depth or along the
/// panels. Rows, columns or depth may be several axes when tiles never reach over an edge of the
/// innermost one, or of the innermost ones that memory joins.
struct TensorView {
  std::string reason; ///< why there is none
  TensorMap map;      ///< without its buffer
  int operand = -1;
  bool transposed = false;
  /// A coordinate: the place along region axes that count as one, each with what a step along it
  /// counts, by `divisor`, and of that the rest by `modulus` (0: all of it).
  struct Coordinate {
    std::vector<std::pair<int, Expr>> axes;
    std::int64_t divisor = 1, modulus = 0;
    Expr at(const Point& p) const {
      Expr place(0);
      for (const auto& [axis, step] : axes)
        place = place + p.at[std::size_t(axis)] * step;
      const Expr whole = floordiv(place, Expr(divisor));
      return modulus > 0 ? floormod(whole, Expr(modulus)) : whole;
    }
  };
  Coordinate panel, depth;        ///< the first two
  std::vector<Coordinate> others; ///< behind them
};

/// A side in boxes of 64 neighbours by `panel` elements along the group, or where neighbours lie
/// along the group, by `depth` along the depth. `join`: axes that memory joins count as one;
/// otherwise no tile has elements of two places along any axis but the innermost one.
TensorView tensor_view(const Region& region, const ContractionForm& form, const Side& side,
                       const AxisGroup& group, int panel, int depth, bool join);

} // namespace egret::kernel
