// Scatters that update one value one after the other become one scatter.
#pragma once

#include "egret/ir.h"
#include "kernel/target.h"

namespace egret::compiler {

/// Replaces a chain of scatters whose results between nobody else reads, as the gradient of an
/// interpolation has one for each of its taps, by one scatter of all their updates:
///
///     scatter(scatter(x, i1, v1), i2, v2)  =  scatter(x, stack(i1, i2), stack(v1, v2))
///
/// The stacks' new axis is the first one of the index, so that updates keep their order. On a GPU
/// only: there, each scatter is a launch that goes through all elements of x, or waits for the
/// whole grid several times; a CPU's touches the elements that it updates.
ir::Graph join_scatters(const ir::Graph& graph, const kernel::Target& target);

} // namespace egret::compiler
