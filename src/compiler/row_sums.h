// The rows' sums in the gradient of a softmax's mixture, from the mixture itself.
#pragma once

#include "egret/ir.h"

namespace egret::compiler {

/// Where P[i,j] are weights, O[i,d] = sum over j of P[i,j] V[j,d] is computed anyway, and a row's
/// sum
///   sum over j of P[i,j] * (sum over d of A[i,d] V[j,d])
/// is asked for, it is the sum over d of A[i,d] O[i,d]: d terms in place of j, and the inner
/// products, which must have more elements than either factor, need not be made for it. Any factors
/// of P that both have count, whatever they are; what else multiplies or divides a row must be a
/// number, or a divisor that is at least 1 or NaN: a sum of exp(x - m), m being the largest x. Sums
/// of finite terms change by rounding only.
ir::Graph shortened_row_sums(const ir::Graph& graph);

} // namespace egret::compiler
