// Which values and variables of a program have an effect: C compilers warn of others.
#pragma once

#include "kernel/program.h"

#include <vector>

namespace egret::backend::c {

struct Live {
  std::vector<bool> values, variables; ///< by number
};

/// What stores, conditions and loops of a CPU's program depend on.
Live live_in(const kernel::KernelProgram& program);

} // namespace egret::backend::c
