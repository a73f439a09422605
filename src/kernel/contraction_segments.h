// Segments of a contraction's depth: ranges of steps in which a side reads memory evenly. A
// concatenation, or an axis that holds several of memory's, changes at the ends of such ranges;
// packing that goes through one after the other has no divisions, no choices between tensors, and
// vectors of neighbours.
#pragma once

#include "kernel/contraction_form.h"

#include <cstdint>
#include <vector>

namespace egret::kernel {

/// Segments that are worth code of their own.
inline constexpr std::size_t kMostSegments = 4;

/// The first step of each segment of the depth, in elements of the depth's index, ascending from 0:
/// between two of them no choice by an index of the depth changes its way, no hole begins or ends,
/// and no quotient or remainder of a depth axis starts anew, as far as the axis alone says so. One
/// segment: {0}, also where there would be more than kMostSegments or a size is not known.
std::vector<std::int64_t> segments_of_depth(const Region& region, const ContractionForm& form,
                                            const Side& side);

} // namespace egret::kernel
