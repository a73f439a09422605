// Which f32 values of a program are numbers of bf16, so that the conversion to bf16 has nothing to
// round.
#pragma once

#include "kernel/program.h"

#include <vector>

namespace egret::kernel {

/// By value: whether the lower half of its bits is 0 in every lane, and where it is NaN, the upper
/// half is one too. So are f32 made of narrower types, constants with few bits, and what choices,
/// maxima, negations and roundings to integers make of such values.
std::vector<bool> bf16_values(const KernelProgram& program);

} // namespace egret::kernel
