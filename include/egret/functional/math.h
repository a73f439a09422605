// Functions that work element by element.
#pragma once

#include "egret/tensor.h"

#include <optional>

namespace egret {

// Floats keep their dtype; functions of calculus take integers as f32.
// Binary ones broadcast and promote as the operators do.
Tensor add(const Arg& a, const Arg& b);
Tensor sub(const Arg& a, const Arg& b);
Tensor mul(const Arg& a, const Arg& b);
Tensor div(const Arg& a, const Arg& b);          ///< integers divide to f32
Tensor floor_divide(const Arg& a, const Arg& b); ///< rounds down; an integer divided by 0 gives 0
Tensor mod(const Arg& a, const Arg& b);          ///< sign of b; an integer modulo 0 gives 0
Tensor pow(const Arg& a, const Arg& b); ///< exponents 2, 3, 0.5, -1 ... become products and roots
Tensor maximum(const Arg& a, const Arg& b); ///< NaN where either is NaN
Tensor minimum(const Arg& a, const Arg& b);
Tensor neg(const Tensor& a);
Tensor abs(const Tensor& a);
Tensor sign(const Tensor& a);
Tensor square(const Tensor& a);
Tensor reciprocal(const Tensor& a);
Tensor sqrt(const Tensor& a);
Tensor rsqrt(const Tensor& a);
Tensor exp(const Tensor& a);
Tensor exp2(const Tensor& a);
Tensor expm1(const Tensor& a);
Tensor log(const Tensor& a);
Tensor log2(const Tensor& a);
Tensor log1p(const Tensor& a);
Tensor sin(const Tensor& a);
Tensor cos(const Tensor& a);
Tensor tan(const Tensor& a);
Tensor tanh(const Tensor& a);
Tensor erf(const Tensor& a);
Tensor floor(const Tensor& a);
Tensor ceil(const Tensor& a);
Tensor trunc(const Tensor& a);
Tensor round(const Tensor& a); ///< halves to even
Tensor isnan(const Tensor& a);
Tensor isinf(const Tensor& a);
Tensor isfinite(const Tensor& a);
Tensor clamp(const Tensor& a, std::optional<Number> low, std::optional<Number> high);
/// a where `condition` (bool) holds, else b; all three broadcast.
Tensor where(const Tensor& condition, const Arg& a, const Arg& b);
Tensor masked_fill(const Tensor& a, const Tensor& mask,
                   Number value); ///< `value` where `mask` holds
Tensor eq(const Arg& a, const Arg& b);
Tensor ne(const Arg& a, const Arg& b);
Tensor lt(const Arg& a, const Arg& b);
Tensor le(const Arg& a, const Arg& b);
Tensor gt(const Arg& a, const Arg& b);
Tensor ge(const Arg& a, const Arg& b);
Tensor logical_and(const Arg& a, const Arg& b); ///< operands as bools (not zero)
Tensor logical_or(const Arg& a, const Arg& b);
Tensor logical_not(const Tensor& a);

} // namespace egret
