// Operands begin at the first element that their region reads.
#pragma once

#include "compiler/regions.h"

#include <vector>

namespace egret::compiler {

/// Regions in canonical form that read different slices of an array differ by a constant in the
/// maps of their loads, and by the array's size: each step of an unrolled loop over time, for
/// instance, reads its own row. This pass moves the constant to BuiltRegion::offsets and shortens
/// the operand to the elements between the first and the last one that are read, so that such
/// regions are equal, and are scheduled, lowered, verified and compiled once.
/// An operand stays as it is where its loads have symbolic or indirect coordinates, where they are
/// not known to stay in the array (bounds of coordinates under a hole's conditions may be wide), or
/// where an output may take over its memory. The alignment becomes what is left of it at the
/// offset; where a load has holes, the operand may begin earlier to keep that of a vector.
void rebase_operands(std::vector<BuiltRegion>& regions);

} // namespace egret::compiler
