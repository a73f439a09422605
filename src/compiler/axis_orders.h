// In which order the axes of intermediate values lie in memory, chosen across a graph (layout
// propagation).
#pragma once

#include "egret/ir.h"
#include "kernel/target.h"

namespace egret::compiler {

/// Computes values with their axes in another order where kernels then read and write neighbouring
/// elements, and looks at them through permutations as before. Values that are joined element by
/// element get one order: what a permutation between them would transpose is stored so from the
/// start, as where a convolution's result [n,c,h,w] is normalized as [n,h,w,c]. Which axis is the
/// innermost one, those who read the values vote by the bytes that they read:
///
/// - reductions of one axis for that axis, less those of several axes, and those over groups of an
///   axis for another one;
/// - convolutions by 16 bits for channels, of what they read and of what they make; products by 16
///   bits for rows that begin at multiples of what is copied at once, and for results whose rows
///   are of the other factor where rows of a computed one are what is summed;
/// - inputs and outputs of the graph, and gathers, scans and sorts, for the order that they have;
/// - what is computed from slices of them, or from joined axes, for its own last axis;
/// - what is read by overlapping windows, and what is made of it, for the order of each other.
///
/// An axis of a few elements is none of them. On GPUs only, and of values of at least so many
/// elements: smaller ones stay in caches in any order. Values keep their bits, but for sums, which
/// may be summed in another order.
ir::Graph with_axis_orders(const ir::Graph& graph, const kernel::Target& target,
                           double least_elements = 1 << 16);

} // namespace egret::compiler
