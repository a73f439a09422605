// Bounds of the integers that a scalar body computes, by interval arithmetic (Moore 1966).
#pragma once

#include "kernel/region.h"

#include <optional>

namespace egret::kernel {

/// The least and the largest value that an integer may have.
struct IntegerRange {
  std::int64_t least = 0, largest = 0;
};

/// The range of a value of a stage's body, whatever its loads give: what follows from their dtypes
/// and from constants, indices and operations between them (the code of a weight less its zero
/// point, a number that is clamped before it is made an integer). Nothing for a float, and where
/// the value is not known to stay within its dtype, in which it would wrap.
std::optional<IntegerRange> range_of(const Region& region, int stage, int value);

} // namespace egret::kernel
