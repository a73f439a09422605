// What becomes of the memory of a graph's output.
#pragma once

#include <cstdint>

namespace egret::compiler {

struct OutputSpec {
  /// The graph input (slot) that the output replaces in place after the run, as an optimizer's
  /// update replaces a parameter; -1: the output has memory of its own.
  std::int64_t state_input = -1;
};

} // namespace egret::compiler
