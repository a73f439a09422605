// Searches for loop trees whose result does not depend on how busy the machine is.
#pragma once

#include "loops/options.h"

#include <limits>

namespace egret::testing {

/// With as much time as it takes: the other options bound the work.
inline loops::LoopOptions unhurried(loops::LoopOptions options = {}) {
  options.seconds = std::numeric_limits<double>::infinity();
  return options;
}

} // namespace egret::testing
