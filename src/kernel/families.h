// The generators, one file each.
#pragma once

#include "kernel/generator.h"

namespace egret::kernel {

/// Any region: one loop nest a stage, with a barrier between stages that feed each other through
/// memory.
const Generator& generic_generator();

} // namespace egret::kernel
