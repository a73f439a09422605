// Sums of products that windows place: gradients of what is read by windows, and transposed
// convolutions.
#pragma once

#include "egret/ir.h"
#include "kernel/target.h"

namespace egret::compiler {

/// Replaces sums of products that are placed where windows lie, and then added where these overlap,
/// by one sum of products:
///
///     sum over w of (sum over k of a[k,i] b[k,w]) at i = h - w  =  sum over k, w of a[k,h-w]
///     b[k,w]
///
/// where a is 0 beside its ends. Of a convolution's gradient by its data, that is a convolution of
/// the gradient; nothing of the size of all windows is stored. Where windows are several elements
/// apart, so that h selects elements of both factors, each place h modulo that step has products of
/// its own, which are a batch. It is done where an estimate for the target says that it is faster;
/// on CPUs it is without such phases only. Sums of finite terms change by rounding only.
ir::Graph with_placed_products(const ir::Graph& graph, const kernel::Target& target);

} // namespace egret::compiler
