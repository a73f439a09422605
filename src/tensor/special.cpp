// Functions of mathematics beyond those of calculus, neighbours of numbers, and small compositions.
// f16 and bf16 are computed in f32.
#include "support/fail.h"
#include "tensor/ops.h"

#include <cmath>
#include <limits>
#include <span>
#include <vector>

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
  return where(y == 0, y, x); // -0 of -0
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
  // At a pole far from 0 both logarithms are infinite.
  return where(isinf(all) | (r.left & (sine == 0)), kInfinity, value).to(given.dtype());
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

namespace {

// `f` of the operand in f64, rounded to its dtype.
template <class F>
Tensor in_f64(const Tensor& a, const char* who, F&& f) {
  const Tensor given = as_float(a, who);
  return f(given.to(DType::F64)).to(given.dtype());
}

// exp(x²) erfc(x): the product where both are ordinary numbers, the asymptotic series from 8 on,
// whose terms are (2k-1)!! / (-2x²)^k.
Tensor scaled_erfc(const Tensor& x) {
  const Tensor near = x < 8;
  const Tensor low = where(near, x, 0), high = where(near, 8, x);
  constexpr int kTerms = 16;
  const Tensor z = reciprocal(square(high)) * -0.5;
  Tensor series = number(x, 1);
  for (int k = kTerms; k > 0; --k)
    series = series * z * (2.0 * k - 1) + 1.0;
  return where(near, exp(square(low)) * erfc(low), series / (high * std::sqrt(M_PI)));
}

Tensor log_normal(const Tensor& x) {
  const Tensor near = x > -1;
  const Tensor high = where(near, x, 0), low = where(near, -1, x) * -M_SQRT1_2;
  return where(near, log1p(erfc(high * M_SQRT1_2) * -0.5),
               log(scaled_erfc(low) * 0.5) - square(low));
}

// The x <= 0 with log_ndtr(x) = log(p), p at most 1/2: from the left the steps of Newton's method
// on a concave function stay there.
Tensor lower_quantile(const Tensor& p) {
  const Tensor wanted = log(p);
  Tensor x = neg(sqrt(wanted * -2.0));
  for (int i = 0; i < 6; ++i) {
    const Tensor slope = std::sqrt(2 / M_PI) / scaled_erfc(x * -M_SQRT1_2);
    x = x - (log_normal(x) - wanted) / slope;
  }
  return x;
}

// Σ (x²/4)^k / (k! (k + order)!) up to |x| = 20, where it has 45 terms, without cancellation.
constexpr double kBesselEdge = 20;
Tensor bessel_series(const Tensor& x, int order) {
  std::vector<double> terms;
  for (int k = 45; k >= 0; --k)
    terms.push_back(std::exp(-std::lgamma(k + 1.0) - std::lgamma(k + order + 1.0)));
  return polynomial(square(x) * 0.25, terms);
}

// I(x) exp(-x) √(2πx) for x from there on: Hankel's expansion (Abramowitz and Stegun 9.7.1).
Tensor bessel_tail(const Tensor& x, int order) {
  const double mu = 4.0 * order * order;
  const Tensor z = reciprocal(x * 8.0);
  Tensor series = number(x, 1);
  for (int k = 30; k > 0; --k)
    series = series * z * (((2.0 * k - 1) * (2.0 * k - 1) - mu) / k) + 1.0;
  return series;
}

Tensor bessel(const Tensor& a, int order, bool scaled, const char* who) {
  return in_f64(a, who, [&](const Tensor& x) {
    const Tensor size = abs(x), near = size < kBesselEdge;
    const Tensor low = where(near, x, 0), high = where(near, kBesselEdge, size);
    Tensor inner = bessel_series(low, order);
    if (order == 1)
      inner = inner * low * 0.5;
    if (scaled)
      inner = inner * exp(neg(where(near, size, 0)));
    Tensor outer = bessel_tail(high, order) / (sqrt(high) * std::sqrt(2 * M_PI));
    if (!scaled) // beyond 800 it is infinite, and the tail may be 0
      outer = where(high > 800, kInfinity, exp(where(high > 800, 0, high)) * outer);
    return where(near, inner, order == 1 ? where(x < 0, neg(outer), outer) : outer);
  });
}

} // namespace

Tensor erfcx(const Operand& a) {
  return in_f64(a, "erfcx", scaled_erfc);
}

Tensor ndtr(const Operand& a) {
  return in_f64(a, "ndtr", [](const Tensor& x) { return erfc(x * -M_SQRT1_2) * 0.5; });
}

Tensor log_ndtr(const Operand& a) {
  return in_f64(a, "log_ndtr", log_normal);
}

Tensor ndtri(const Operand& a) {
  return in_f64(a, "ndtri", [](const Tensor& p) {
    const Tensor inside = (p > 0) & (p < 1);
    const Tensor known = stopped(where(inside, p, 0.5)), upper = known > 0.5;
    const Tensor size = lower_quantile(where(upper, 1 - known, known));
    const Tensor x = stopped(where(upper, neg(size), size));
    // The value is x; the step is 0 and has the first two derivatives of the inverse.
    const Tensor step = (p - stopped(p)) * exp(square(x) * 0.5) * std::sqrt(2 * M_PI);
    const Tensor edge = where(p == 0, -kInfinity, where(p == 1, number(p, kInfinity), kNan));
    return where(inside, x + step + x * square(step) * 0.5, edge);
  });
}

Tensor entr(const Operand& a) {
  return wide(a, "entr", [](const Tensor& x) {
    const Tensor positive = x > 0;
    const Tensor y = neg(x * log(where(positive, x, 1)));
    const Tensor beyond = where(isnan(x), x.detach(), -kInfinity);
    return where(positive, y, where(x == 0, number(x, 0), beyond));
  });
}

Tensor xlog1py(const Arg& a, const Arg& b) {
  auto [x, y] = matched_floats(a, b, "xlog1py");
  const DType type = x.dtype();
  const Tensor u = widened(x), v = widened(y);
  // The logarithm of 1 where 0 would meet an infinite one or none.
  const Tensor plain = (u == 0) & ((v <= -1) | (v == kInfinity));
  return (u * log1p(where(plain, 0, v))).to(type);
}

Tensor i0(const Operand& a) {
  return bessel(a, 0, false, "i0");
}
Tensor i1(const Operand& a) {
  return bessel(a, 1, false, "i1");
}
Tensor i0e(const Operand& a) {
  return bessel(a, 0, true, "i0e");
}
Tensor i1e(const Operand& a) {
  return bessel(a, 1, true, "i1e");
}

Tensor multigammaln(const Operand& a, std::int64_t p) {
  if (p < 1 || p > 1000)
    fail(ErrorKind::Value, "multigammaln: p is {}; it lies between 1 and 1000", p);
  return in_f64(a, "multigammaln", [&](const Tensor& x) {
    const double n = static_cast<double>(p);
    Tensor y = number(x, n * (n - 1) / 4 * std::log(M_PI));
    for (std::int64_t i = 0; i < p; ++i)
      y = y + lgamma(x - static_cast<double>(i) / 2);
    return y;
  });
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
