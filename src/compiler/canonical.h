// The canonical form of regions, by which equal kernels are found equal.
#pragma once

#include "kernel/region.h"
#include "kernel/target.h"

namespace egret::compiler {

/// Flattens operands and outputs, so that the one coordinate of a load is an element offset, and
/// merges neighbouring axes that every load, body and output goes through together (loop
/// coalescing): a [16,128,512] activation becomes a matrix of 2048 rows. On a GPU an axis of a
/// product of which a factor reads the digits, x / n and x % n, becomes two: boxes of heads that
/// were joined are copied from where each lies. (On a CPU these are the panels of packed weights.)
/// Templates take canonical regions only.
void canonicalize(kernel::Region& region, const kernel::Target& target = {});

} // namespace egret::compiler
