// How much memory of the host a compiled graph takes while it is kept.
#pragma once

#include "compiler/compile.h"

namespace egret::compiler {

/// Bytes of the plan, its kernels' machine code and the report, to within a third or so: what a
/// bound on kept plans is compared with. Machine code that several plans share counts in each.
std::size_t footprint(const Compiled& compiled);

} // namespace egret::compiler
