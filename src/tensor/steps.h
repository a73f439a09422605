// Loops whose steps are alike.
#pragma once

#include "egret/tensor.h"
#include "tensor/queue.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace egret::detail {

/// Steps that are one program: few enough to compile in a moment, more than a launch or two.
constexpr std::int64_t kStepsTogether = 8;

/// Computes what is pending of these, unless some of it is recorded for a traced function or a
/// graph. Errors are left to who reads a value.
void compute_between_steps(std::initializer_list<const Tensor*> state) noexcept;

/// Runs group(first, count) for all steps in groups of kStepsTogether, the last one perhaps of
/// fewer, and computes `state` before and between them: lazy groups are then one program, which is
/// compiled once and run again, in place of one program of all steps. What a step reads besides
/// has to be in `state`, else each group would compute it anew. A traced function or a graph
/// records all steps.
template <class Group>
void in_groups(std::int64_t steps, std::initializer_list<const Tensor*> state, const Group& group) {
  const QueueHold hold; // nor does the queue cut them elsewhere
  for (std::int64_t first = 0; first < steps; first += kStepsTogether) {
    compute_between_steps(state);
    group(first, std::min(kStepsTogether, steps - first));
  }
  compute_between_steps(state);
}

} // namespace egret::detail
