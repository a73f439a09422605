// What the rules of src/rules/loops.egg may know of a region and a target.
#pragma once

#include "kernel/region.h"
#include "kernel/target.h"

#include <cstdint>
#include <string>
#include <vector>

namespace egret::loops {

/// Stages and axes that a set of bits holds.
constexpr std::size_t kMostStages = 60, kMostAxes = 60;

/// Why no terms are made of the region's loops; empty where they are.
std::string why_no_terms(const kernel::Region& region);

/// A program of facts, one a line, in the order of the declarations.
std::string facts_of(const kernel::Region& region, const kernel::Target& target);

/// Factors worth trying for a loop of the axis: lanes, sizes of matrix units, powers of two and
/// what divides the extent, below it; ascending, a dozen at the most.
std::vector<std::int64_t> factors_of(const kernel::Region& region, int axis,
                                     const kernel::Target& target);

/// Lanes of a vector in the widest type that the region's stages compute.
int lanes_of_region(const kernel::Region& region, const kernel::Target& target);

/// Whether iterations along an axis of a stage hang on each other in no way.
bool is_parallel(const kernel::Region& region, int stage, int axis);
/// Whether a stage's terms may be combined in any order and in parts.
bool regroups(const kernel::Stage& stage);

/// A stage that sums products of two factors of one type, with the axes of a matrix unit and its
/// sizes.
struct UnitProduct {
  int stage = 0, m = 0, n = 0, k = 0;
  std::int64_t rows = 0, columns = 0, depth = 0;
};
std::vector<UnitProduct> unit_products(const kernel::Region& region, const kernel::Target& target);

/// Maps that are no outputs may be computed where they are read.
bool may_be_inline(const kernel::Region& region, int stage);

/// Stages that a stage reads, directly or through maps that need no memory, as bits.
std::uint64_t taken_by(const kernel::Region& region, int stage);

} // namespace egret::loops
