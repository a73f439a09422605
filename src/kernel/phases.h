// How often the workers of a launch wait for each other.
#pragma once

#include "kernel/program.h"

namespace egret::kernel {

/// Parts of a launch between which all of its workers (on a GPU, all blocks) meet: one more than
/// the barriers that a run of the program passes. Where their number depends on dims, the most it
/// can be.
std::int64_t phases_of(const KernelProgram& program);

} // namespace egret::kernel
