// Sums of exp(x - M), where M is the larger of x's own maximum m and something else of the row, as
// a softmax over x and a sink or over several blocks of keys has them, are those of exp(x - m),
// scaled: FlashAttention's rule for joining blocks (Dao et al. 2022), backwards. What is then
// summed waits for nothing but x, so that one pass along x makes it, whatever the other parts are.
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

/// The graph in which
///   sum(exp(x - M) * v) = exp(m - M) * sum(exp(x - m) * v),     M = max(m, ..), m = max(x),
/// and 0 where m is -inf and M is not, for x that are made of products larger than their factors.
/// Between exp(x - M) and the sum there may be roundings to 16 bits, factors that do not depend on
/// M, and a division by a sum of exponentials that has these terms among its own: it is done behind
/// the sum, with the same relative error.
ir::Graph with_own_maxima(const ir::Graph& graph);

} // namespace egret::compiler
