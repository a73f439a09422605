// Horizontal fusion (as in XLA and in multi-tensor optimizers): small kernels that do not depend on
// each other, such as the updates of many small parameters, become one launch.
#pragma once

#include "compiler/output_spec.h"
#include "compiler/regions.h"

namespace egret::compiler {

/// Puts independent regions of one kind together (kernel/parts.h) that each take no more than a few
/// launches' time. None of them may depend on another, also not by overwriting a state that the
/// other reads; what is kept in memory for longer must stay small; and together they must fit into
/// the arguments of a launch. Kernels that depend on nothing but numbers share launches with each
/// other only: these run once. `regions` must tell which states they write in place
/// (declare_overwritten_inputs); they are in an order that respects reads, before and after.
void batch_small_kernels(const ir::Graph& graph, std::vector<BuiltRegion>& regions,
                         const std::vector<OutputSpec>& outputs, const kernel::Target& target);

} // namespace egret::compiler
