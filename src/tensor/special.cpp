// Functions of mathematics beyond those of calculus, neighbours of numbers, and small compositions.
// f16 and bf16 are computed in f32.
#include "support/fail.h"
#include "tensor/ops.h"

#include <cmath>
#include <limits>
#include <span>

namespace egret {

using namespace detail;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Tensor polynomial(const Tensor& x, std::span<const double> terms) {
  Tensor sum = number(x, terms[0]);
  for (const double term : terms.subspan(1))
    sum = sum * x + term;
  return sum;
}

// The x with erf(x) = y for -1 < y < 1 in f32: M. Giles 2010, "Approximating the erfinv function",
// two polynomials of log(1 - y²).
Tensor inverse_erf_of_f32(const Tensor& y) {
  constexpr double middle[] = {2.81022636e-08,  3.43273939e-07, -3.5233877e-06,
                               -4.39150654e-06, 0.00021858087,  -0.00125372503,
                               -0.00417768164,  0.246640727,    1.50140941};
  constexpr double tails[] = {-0.000200214257, 0.000100950558, 0.00134934322,
                              -0.00367342844,  0.00573950773,  -0.0076224613,
                              0.00943887047,   1.00167406,     2.83297682};
  const Tensor w = neg(log((1 - y) * (y + 1)));
  return where(w < 5, polynomial(w - 2.5, middle), polynomial(sqrt(maximum(w, 5)) - 3, tails)) * y;
}

// The same in f64: a first guess (S. Winitzki 2008, within 0.002) and steps of
// Newton's method on the smaller tail.
Tensor inverse_erf(const Tensor& y) {
  const Tensor l = log((1 - y) * (y + 1));
  const double a = 0.147, b = 2 / (M_PI * a);
  const Tensor half = l * 0.5 + b;
  const Tensor size = sqrt(sqrt(square(half) - l * (1 / a)) - half);
  Tensor x = where(y < 0, neg(size), size);
  for (int i = 0; i < 3; ++i) {
    // erf(x) - y, of the complements where both are near 1.
    const Tensor s = where(y < 0, number(y, -1), number(y, 1));
    const Tensor error = where(abs(y) < 0.5, erf(x) - y, ((1 - y * s) - erfc(x * s)) * s);
    x = x - error * exp(square(x)) * number(y, std::sqrt(M_PI) / 2);
  }
  return x;
}

// log Γ and its derivative grow by sums over the poles: both are reflected where x < 1/2, by
// Γ(x) Γ(1-x) = π / sin πx.
struct Reflected {
  Tensor right; ///< x, or 1 - x where x < 1/2
  Tensor left;  ///< bool: it was
  Tensor apart; ///< x less the nearest integer, 1/2 where it was not: sin πx = ±sin(π apart)
};
Reflected reflected(const Tensor& x) {
  const Tensor left = x < 0.5;
  return {where(left, 1 - x, x), left, where(left, x - round(x), number(x, 0.5))};
}

// Lanczos' series (1964) with g = 7 and nine terms.
Tensor log_gamma(const Tensor& x) {
  constexpr double terms[] = {676.5203681218851,     -1259.1392167224028,  771.32342877765313,
                              -176.61502916214059,   12.507343278686905,   -0.13857109526572012,
                              9.9843695780195716e-6, 1.5056327351493116e-7};
  const Tensor y = x - 1;
  Tensor sum = number(x, 0.99999999999980993);
  for (int i = 0; i < 8; ++i)
    sum = sum + terms[i] / (y + (i + 1));
  const Tensor t = y + 7.5;
  return (y + 0.5) * log(t) - t + log(sum) + number(x, 0.5 * std::log(2 * M_PI));
}

// The recurrence ψ(x) = ψ(x+1) - 1/x, then the asymptotic series.
Tensor psi(const Tensor& x) {
  Tensor below = number(x, 0);
  for (int i = 0; i < 8; ++i)
    below = below + 1 / (x + i);
  const Tensor y = x + 8, z = 1 / square(y);
  // B(2n) / 2n
  constexpr double terms[] = {1.0 / 12,  -1.0 / 120,     1.0 / 252, -1.0 / 240,
                              1.0 / 132, -691.0 / 32760, 1.0 / 12};
  Tensor series = number(x, terms[6]);
  for (int i = 5; i >= 0; --i)
    series = series * z + terms[i];
  return log(y) - 0.5 / y - series * z - below;
}

} // namespace

Tensor erfinv(const Operand& a) {
  const Tensor given = as_float(a, "erfinv");
  const Tensor y = widened(given);
  const Tensor edge = abs(y) == 1;
  const Tensor inside = where(abs(y) < 1, y, 0);
  const Tensor x =
      stopped(y.dtype() == DType::F32 ? inverse_erf_of_f32(inside) : inverse_erf(inside));
  // The value is x; the step is that of Halley's method from there, which is 0 and has the first
  // two derivatives of the inverse.
  const Tensor u = (stopped(y) - y) * exp(square(x)) * number(y, std::sqrt(M_PI) / 2);
  const Tensor value = x - u / (u * x + 1);
  const Tensor beyond = where(edge, copysign(number(y, kInfinity), stopped(y)), kNan);
  return where(abs(y) < 1, value, beyond).to(given.dtype());
}

Tensor lgamma(const Operand& a) {
  const Tensor given = as_float(a, "lgamma");
  const Tensor all = given.to(DType::F64);
  const Tensor x = where(isinf(all), 1, all);
  const Reflected r = reflected(x);
  const Tensor right = log_gamma(r.right);
  const Tensor sine = abs(sin(r.apart * M_PI));
  const Tensor value = where(r.left, std::log(M_PI) - log(sine) - right, right);
  return where(isinf(all), kInfinity, value).to(given.dtype());
}

Tensor digamma(const Operand& a) {
  const Tensor given = as_float(a, "digamma");
  const Tensor x = given.to(DType::F64);
  const Reflected r = reflected(x);
  const Tensor turn = r.apart * M_PI;
  const Tensor right = psi(r.right);
  const Tensor value = where(r.left, right - cos(turn) / sin(turn) * M_PI, right);
  const Tensor pole = (x < 0) & (r.apart == 0);
  const Tensor zero = neg(copysign(number(x, kInfinity), x));
  return where(pole, kNan, where(x == 0, zero, where(x == kInfinity, kInfinity, value)))
      .to(given.dtype());
}

Tensor nextafter(const Arg& a, const Arg& b) {
  auto [x, y] = matched_floats(a, b, "nextafter");
  const DType bits = bits_of(x.dtype());
  const Tensor top = top_bit(x.dtype());
  const Tensor own = x.bitcast(bits), one = constant(Scalar::of(bits, std::int64_t{1}));
  // Away from 0 the bits count up, towards it down.
  const Tensor away = (y > x) == (x > 0);
  const Tensor from_zero =
      where(signbit(y), top | one, one); // the smallest number with the sign of y
  const Tensor next = where(x == 0, from_zero, where(away, own + one, own - one));
  const Tensor moved = next.bitcast(x.dtype());
  return where(isnan(x) | isnan(y), x + y, where(x == y, y, moved));
}

Tensor heaviside(const Arg& a, const Arg& at_zero) {
  auto [x, y] = matched(a, at_zero, "heaviside");
  const Tensor step = where(x < 0, number(x, 0), number(x, 1));
  return where(x == 0, y, is_float(x.dtype()) ? where(isnan(x), x.detach(), step) : step);
}

Tensor fmax(const Arg& a, const Arg& b) {
  auto [x, y] = matched(a, b, "fmax");
  return where(x != x, y, where(y != y, x, maximum(x, y)));
}

Tensor fmin(const Arg& a, const Arg& b) {
  auto [x, y] = matched(a, b, "fmin");
  return where(x != x, y, where(y != y, x, minimum(x, y)));
}

Tensor ldexp(const Arg& a, const Arg& b) {
  auto [x, y] = matched_floats(a, b, "ldexp");
  const Tensor wide = widened(x);
  // In two steps: 2^b alone may be out of range where the product is not.
  const Tensor all = y.to(wide.dtype()), half = trunc(all * 0.5);
  return (wide * exp2(half) * exp2(all - half)).to(x.dtype());
}

Tensor float_power(const Arg& a, const Arg& b) {
  return pow(as_tensor(a, DType::F64), as_tensor(b, DType::F64));
}

Tensor addcmul(const Operand& c, const Operand& a, const Operand& b, const Arg& value) {
  return add(c, mul(mul(a, b), value));
}

Tensor addcdiv(const Operand& c, const Operand& a, const Operand& b, const Arg& value) {
  return add(c, mul(div(a, b), value));
}

Tensor clamp(const Operand& a, const Operand& low, const Operand& high) {
  Access::held(a, "clamp");
  if (!low.defined() && !high.defined())
    fail(ErrorKind::Value, "clamp: no bound is given");
  const Tensor above = low.defined() ? maximum(a, low) : Tensor(a);
  return high.defined() ? minimum(above, high) : above;
}

} // namespace egret
