// Fused column reductions: a kernel that sums over the rows which another kernel visits one by one
// joins it, so that both read their large operands once. Gradients of the scale and the shift of a
// layer norm are such sums.
#pragma once

#include "compiler/regions.h"

namespace egret::compiler {

/// Merges a region whose reductions run over the rows of another (sums over the batch) into that
/// other region, if every operand that it reads in full is read or computed there, if that is much
/// memory, and if a template of the target keeps such sums from row to row. `regions` are in an
/// order that respects reads, before and after.
void fuse_column_reductions(std::vector<BuiltRegion>& regions, const kernel::Target& target);

} // namespace egret::compiler
