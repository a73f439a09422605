// What a library's product means, element by element.
#pragma once

#include "kernel/program.h"

namespace egret::backend::reference {

/// Computes `program`, which has a product and is verified: sums in f64, rounded to f32 before bias
/// and activation.
void make_product(const kernel::KernelProgram& program, const kernel::ArgBlock& block);

} // namespace egret::backend::reference
