// What the search for sizes begins with: a tree as nests, whose loops have no order and no sizes
// yet, only roles.
#pragma once

#include "kernel/loops/tree.h"

#include <string>
#include <vector>

namespace egret::loops {

/// Loops that a body or several parts share. Each is over the whole axis, or what a loop outside
/// leaves of it.
struct Nest {
  std::vector<int> axes;   ///< of loops over results of all that is inside
  std::vector<int> sums;   ///< stages whose sums are made here: finished behind the nest
  std::vector<int> terms;  ///< axes that those sums (or the body) go along
  std::vector<Nest> parts; ///< one after the other; empty around a body
  int body = -1;

  friend bool operator==(const Nest&, const Nest&) = default;
};

/// The nests of a tree of serial loops over whole axes, one after the other. Masks and copies are
/// not looked at.
std::vector<Nest> nests_of(const kernel::Region& region, const kernel::loops::Tree& tree);

/// "p0(r0:0 p1)", for reports and comparison: loops that are shared, and in parentheses what is
/// inside.
std::string text_of(const std::vector<Nest>& nests);

} // namespace egret::loops
