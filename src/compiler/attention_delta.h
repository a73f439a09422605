// Attention's delta: the row sums in the gradient of a softmax-weighted sum, from its output
// (FlashAttention-2, Dao 2023, section 3.1).
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

/// Replaces rowsum(P * dP), where dP = dO V^T, by rowsum(dO * O), where the graph computes O = P V
/// anyway:
///
///     sum over j of P[i,j] * (sum over d of dO[i,d] V[j,d])  =  sum over d of dO[i,d] O[i,d]
///
/// That is d terms in place of j, and dP, which must have more elements than either factor, need
/// not be computed for it. P may be any product of factors that both sums have. A factor of the row
/// that only one of them has must be a number, or a divisor that is at least 1 or NaN: a sum of
/// exp(x - m) with m the largest x. Sums of finite terms change by rounding only.
ir::Graph with_attention_delta(const ir::Graph& graph);

} // namespace egret::compiler
