// Stores with gaps between the lanes, where others fill the gaps.
#pragma once

#include "kernel/program.h"

namespace egret::kernel {

/// Vectors whose lanes go to every n-th element of a buffer, n of them that together go to all
/// elements of a row, are interleaved in registers and stored as n contiguous vectors. They have to
/// follow each other with no access to other memory in between.
void interleave_stores(KernelProgram& program);

} // namespace egret::kernel
