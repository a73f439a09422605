// Functions that work element by element.
#pragma once

#include "egret/tensor.h"

#include <optional>

namespace egret {

// Floats keep their dtype; functions of calculus take integers as f32, and the numbers beside them.
// Binary ones broadcast and promote as the operators do.
// Bools are no numbers here: sums, differences and products of two bools, neg and square of bools
// are Error(DType).
Tensor add(const Arg& a, const Arg& b);
Tensor sub(const Arg& a, const Arg& b);
Tensor mul(const Arg& a, const Arg& b);
Tensor div(const Arg& a, const Arg& b); ///< integers divide to f32
/// Rounds the exact quotient down, so that a is floor_divide(a, b) · b + mod(a, b); an integer
/// divided by 0 gives 0.
Tensor floor_divide(const Arg& a, const Arg& b);
Tensor mod(const Arg& a, const Arg& b); ///< sign of b; an integer modulo 0 gives 0
/// Exponents 2, 3, 0.5, -1 ... become products and roots. An integer to the power of an integer
/// number, not negative, is an integer, which wraps.
Tensor pow(const Arg& a, const Arg& b);
Tensor maximum(const Arg& a, const Arg& b); ///< NaN where either is NaN
Tensor minimum(const Arg& a, const Arg& b);
Tensor neg(const Operand& a);
Tensor abs(const Operand& a);
Tensor sign(const Operand& a);
Tensor square(const Operand& a);
Tensor reciprocal(const Operand& a);
Tensor sqrt(const Operand& a);
Tensor rsqrt(const Operand& a);
Tensor exp(const Operand& a);
Tensor exp2(const Operand& a);
Tensor expm1(const Operand& a);
Tensor log(const Operand& a);
Tensor log2(const Operand& a);
Tensor log1p(const Operand& a);
Tensor sin(const Operand& a);
Tensor cos(const Operand& a);
Tensor tan(const Operand& a);
Tensor tanh(const Operand& a);
Tensor erf(const Operand& a);
Tensor floor(const Operand& a);
Tensor ceil(const Operand& a);
Tensor trunc(const Operand& a);
Tensor round(const Operand& a); ///< halves to even
// bool; of integers and bools false (isfinite: true).
Tensor isnan(const Operand& a);
Tensor isinf(const Operand& a);
Tensor isfinite(const Operand& a);
Tensor isposinf(const Operand& a);
Tensor isneginf(const Operand& a);
/// Between bounds of which one may be empty; Error(Value) without any.
Tensor clamp(const Operand& a, std::optional<Number> low, std::optional<Number> high);
/// a where `condition` (bool) holds, else b; all three broadcast.
Tensor where(const Operand& condition, const Arg& a, const Arg& b);
Tensor masked_fill(const Operand& a, const Operand& mask,
                   Number value); ///< `value` where `mask` holds
// Comparisons give bool; operands promote and broadcast; false where either is NaN (ne: true). An
// integer number counts as what it is, also where the tensor's dtype does not hold it; so do those
// of maximum, minimum and clamp.
Tensor eq(const Arg& a, const Arg& b);
Tensor ne(const Arg& a, const Arg& b);
Tensor lt(const Arg& a, const Arg& b);
Tensor le(const Arg& a, const Arg& b);
Tensor gt(const Arg& a, const Arg& b);
Tensor ge(const Arg& a, const Arg& b);
Tensor logical_and(const Arg& a, const Arg& b); ///< operands as bools (not zero)
Tensor logical_or(const Arg& a, const Arg& b);
Tensor logical_not(const Operand& a);

Tensor logical_xor(const Arg& a, const Arg& b);
Tensor bitwise_not(const Operand& a); ///< bools and integers
/// |a - b| <= atol + rtol |b|; equal infinities are close, NaN to NaN with `equal_nan` only.
Tensor isclose(const Arg& a, const Arg& b, double rtol = 1e-5, double atol = 1e-8,
               bool equal_nan = false);
Tensor allclose(const Arg& a, const Arg& b, double rtol = 1e-5, double atol = 1e-8,
                bool equal_nan = false); ///< bool, rank 0

// Compositions whose accuracy docs/math.md tells. f16 and bf16 are computed in f32.
Tensor asin(const Operand& a);
Tensor acos(const Operand& a);
Tensor atan(const Operand& a);
Tensor atan2(const Arg& a, const Arg& b); ///< angle of the point (b, a), signs of zeros included
Tensor sinh(const Operand& a);
Tensor cosh(const Operand& a);
Tensor asinh(const Operand& a);
Tensor acosh(const Operand& a);
Tensor atanh(const Operand& a);
Tensor erfc(const Operand& a); ///< 1 - erf(a), accurate where that is small
Tensor log10(const Operand& a);
Tensor logit(const Operand& a, std::optional<double> eps = {}); ///< log(a/(1-a)), a in eps..1-eps
Tensor sinc(const Operand& a);                                  ///< sin(πa)/(πa), 1 at 0
Tensor hypot(const Arg& a, const Arg& b);                       ///< √(a²+b²) without overflow
Tensor logaddexp(const Arg& a, const Arg& b);  ///< log(exp(a) + exp(b)) without overflow
Tensor logaddexp2(const Arg& a, const Arg& b); ///< log2(2^a + 2^b)
Tensor xlogy(const Arg& a, const Arg& b);      ///< a log(b), 0 where a is 0 unless b is NaN
Tensor lerp(const Operand& a, const Operand& b, const Arg& weight); ///< a + weight (b - a)
Tensor deg2rad(const Operand& a);
Tensor rad2deg(const Operand& a);

Tensor signbit(const Operand& a);             ///< bool; true for -0 and negative NaN
Tensor copysign(const Arg& a, const Arg& b);  ///< |a| with the sign of b, also of its zeros
Tensor fmod(const Arg& a, const Arg& b);      ///< sign of a; mod has that of b
Tensor remainder(const Arg& a, const Arg& b); ///< mod
Tensor frac(const Operand& a);                ///< a - trunc(a)
/// Numbers in place of NaN and infinities, by default 0 and the dtype's largest and lowest.
Tensor nan_to_num(const Operand& a, double nan = 0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {});

Tensor erfinv(const Operand& a);  ///< the x with erf(x) = a; ±inf at ±1, NaN beyond
Tensor lgamma(const Operand& a);  ///< log |Γ(a)|, in f64 inside; inf at 0, -1, -2 ...
Tensor digamma(const Operand& a); ///< the derivative of log Γ, in f64 inside; NaN at -1, -2 ...
/// The n-th derivative of digamma, in f64 inside; inf or NaN at 0, -1, -2 ... Error(Value) unless n
/// is from 0 to 100.
Tensor polygamma(std::int64_t n, const Operand& a);
/// Hurwitz's zeta function Σ (q + k)^-x over k from 0, in f64 inside: inf for x = 1 and for q = 0,
/// -1, -2 ..., NaN for x < 1 and for other q below 0.
Tensor zeta(const Arg& x, const Arg& q);
/// The regularized incomplete gamma functions for a > 0, x >= 0 (NaN elsewhere): the part of the
/// integral of t^(a-1) exp(-t) below x, and above it. In f64 inside, within 1e-13 of the larger one
/// for a up to 1e6. Gradients for x alone: Error(Unsupported) where `a` requires one.
Tensor gammainc(const Arg& a, const Arg& x);
Tensor gammaincc(const Arg& a, const Arg& x);
// The normal distribution, entropies and Bessel functions (torch.special), in f64 inside. f16, bf16
// and f32 are rounded once; integers are computed as f32.
Tensor erfcx(const Operand& a); ///< exp(a²) erfc(a), without underflow; inf below -26.6
Tensor ndtr(const Operand& a);  ///< the part of the normal distribution below a: erfc(-a/√2) / 2
Tensor log_ndtr(const Operand& a); ///< its logarithm, accurate far below 0
/// The x with ndtr(x) = a: ±inf at 0 and 1, NaN beyond. First and second derivatives are right.
Tensor ndtri(const Operand& a);
Tensor entr(const Operand& a); ///< -a log(a), 0 at 0, -inf below; the gradient at 0 is 0
Tensor xlog1py(const Arg& a, const Arg& b); ///< a log1p(b), 0 where a is 0 unless b is NaN
Tensor i0(const Operand& a);                ///< the modified Bessel function of order 0, even
Tensor i1(const Operand& a);                ///< of order 1, odd
Tensor i0e(const Operand& a);               ///< i0(a) exp(-|a|)
Tensor i1e(const Operand& a);               ///< i1(a) exp(-|a|)
/// log of the multivariate gamma function: p (p-1) / 4 log π + Σ lgamma(a - i / 2), i from 0 to
/// p-1. Error(Value) unless p is from 1 to 1000.
Tensor multigammaln(const Operand& a, std::int64_t p);

/// The next number of the dtype from a towards b.
Tensor nextafter(const Arg& a, const Arg& b);
Tensor heaviside(const Arg& a, const Arg& at_zero); ///< 0 below 0, 1 above, `at_zero` at it
Tensor fmax(const Arg& a, const Arg& b);            ///< maximum, of the other one where one is NaN
Tensor fmin(const Arg& a, const Arg& b);
Tensor ldexp(const Arg& a, const Arg& b);       ///< a · 2^b
Tensor float_power(const Arg& a, const Arg& b); ///< pow in f64
/// c + value · a · b and c + value · a / b.
Tensor addcmul(const Operand& c, const Operand& a, const Operand& b, const Arg& value = 1);
Tensor addcdiv(const Operand& c, const Operand& a, const Operand& b, const Arg& value = 1);
/// Between bounds that broadcast; an empty one does not bound. Where they cross, the upper one.
Tensor clamp(const Operand& a, const Operand& low, const Operand& high);

} // namespace egret
