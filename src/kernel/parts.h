// Regions that consist of several which have nothing to do with each other: what one launch may
// compute beside each other (batch.cpp).
#pragma once

#include "kernel/region.h"

#include <cstddef>
#include <span>
#include <vector>

namespace egret::kernel {

/// One of the independent regions that a region consists of.
struct Part {
  Region region;
  std::vector<int> operands, outputs; ///< numbers of the part's operands and outputs in the whole
};

/// Stages that share an axis or read each other are of one part; so are all stages without axes
/// that read no stage. Parts come in the order of their first stages; a region that is one whole
/// has one part.
std::vector<Part> parts_of(const Region& region);
bool has_parts(const Region& region); ///< more than one
bool are_of_one_part(const Region& region, std::size_t stage, std::size_t other);

/// Writes the axes, stages and outputs of `part` behind those of `whole`, as independent ones.
/// `operands` tells for each operand of the part which one of the whole it is.
void add_part(Region& whole, const Region& part, std::span<const int> operands);

} // namespace egret::kernel
