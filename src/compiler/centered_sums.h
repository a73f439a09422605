// Sums of deviations from a mean, which are 0.
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

/// Leaves deviations out of sums over the axes of their mean:
///
///     sum over i of c (x[i] - mean(x))  =  0
///
/// for any c that does not depend on i, also as one of several addends. Gradients of variances have
/// such sums: that of a normalization's mean waits for the one of its variance otherwise, which is
/// another pass over memory. Sums of finite terms change by rounding only. Sums are of f32.
ir::Graph without_centered_sums(const ir::Graph& graph);

} // namespace egret::compiler
