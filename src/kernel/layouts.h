// How a kernel would like an operand to lie in memory, for those who may put it there beforehand.
#pragma once

#include "kernel/region.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace egret::kernel {

/// One digit of an index along an axis, which may have several: of extents 0 and 8, the outer one
/// counts groups of 8 neighbours and the inner one their places.
struct Digit {
  int axis = 0;
  /// 0, for the outermost digit of its axis: all that is left. Where the extents of an axis hold
  /// more than the axis, the rest is padding.
  std::int64_t extent = 0;
  friend bool operator==(const Digit&, const Digit&) = default;
};

/// An order of elements: those of a box of sizes `box`, by the digits of their indices, the digit
/// that varies slowest first. Where groups do not fit, there is room for whole ones at the end.
struct Layout {
  std::vector<std::int64_t> box;
  std::vector<Digit> digits;
  friend bool operator==(const Layout&, const Layout&) = default;
};
/// "[n1/16,n0,n1%16]" with the axes of the box as n0, n1 ..., "[n0,n1:64]" for rows with room for
/// 64.
std::string to_string(const Layout& layout);
std::uint64_t hash_of(const Layout& layout);
/// Extents of the digits, from outside to inside.
std::vector<std::int64_t> extents_of(const Layout& layout);
/// Whether every digit is a whole axis, and whether no group is left unfilled.
bool is_permutation(const Layout& layout);
bool fits_exactly(const Layout& layout);

/// What a generator prefers: that the memory of an operand, row-major with sizes layout.box, were
/// in that layout instead.
struct LayoutWish {
  int operand = 0;
  Layout layout;
  std::string what; ///< for people: "panels of 48"
  /// That the kernel should save where all its wishes with a figure are met; 0: a search has to
  /// tell.
  double seconds = 0;
};

/// The region axes whose box the load's operand is, the outermost in memory first; nothing when the
/// load leaves elements out, repeats some or depends on data, or when sizes are not known.
std::optional<std::vector<int>> axes_in_memory(const Region& region, const Stage& stage,
                                               const Load& load);

} // namespace egret::kernel
