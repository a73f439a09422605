// The canonical form of regions, by which equal kernels are found equal.
#pragma once

#include "kernel/region.h"

namespace egret::compiler {

/// Flattens operands and outputs, so that the one coordinate of a load is an element offset, and
/// merges neighbouring axes that every load, body and output goes through together (loop
/// coalescing): a [16,128,512] activation becomes a matrix of 2048 rows. Templates take canonical
/// regions only.
void canonicalize(kernel::Region& region);

} // namespace egret::compiler
