// Sums of columns beside rows: a kernel that sums what another visits row by row goes along with
// it, so that both read their large operands once.
#pragma once

#include "compiler/regions.h"

namespace egret::compiler {

/// Puts a region whose reductions run over the rows of another (weight gradients of a norm: sums
/// over the batch) into that other region, if it reads nothing in full that the other does not read
/// or make and much of it, and a generator of the target carries such sums from row to row.
/// `regions` are in an order that respects reads, and stay so.
void carry_column_sums(std::vector<BuiltRegion>& regions, const kernel::Target& target);

} // namespace egret::compiler
