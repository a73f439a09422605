// What becomes of the memory of a graph's output.
#pragma once

#include "egret/ir.h"

#include <cstdint>
#include <vector>

namespace egret::compiler {

struct OutputSpec {
  /// The graph input (slot) that the output replaces in place after the run, as an optimizer's
  /// update replaces a parameter; -1: the output has memory of its own.
  std::int64_t state_input = -1;
  /// The graph input over which the output may be written in a run whose caller needs that input no
  /// longer; -1: none. In all other runs, and where a kernel cannot, the output has memory of its
  /// own. Not beside state_input.
  std::int64_t over_input = -1;

  /// The input that is overwritten, always or in some runs; -1: none.
  std::int64_t overwritten() const noexcept { return state_input >= 0 ? state_input : over_input; }
};

/// For each output of a graph the input that it may be written over: one of its shape and dtype
/// from which elementwise operations alone lead to it, the nearest such, no two outputs the same.
/// Empty where there is none.
std::vector<OutputSpec> outputs_over_inputs(const ir::Graph& graph);

} // namespace egret::compiler
