// Derivatives of log Γ, Hurwitz's zeta function and the incomplete gamma functions. All in f64.
#include "egret/grad.h"
#include "support/fail.h"
#include "tensor/ops.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace egret {

using namespace detail;

namespace {

// Σ (q + k)^-x over k from 0 for q > 0, x > 1: ten terms, and Euler's and Maclaurin's formula for
// the rest. `power` gives q^-x, and `lower` q^(1-x): of a large q that is far above the least
// number where the other is not.
template <class F, class G>
Tensor hurwitz(const Tensor& x, const Tensor& q, F&& power, G&& lower) {
  constexpr int kTerms = 10;
  Tensor sum = power(q);
  for (int k = 1; k < kTerms; ++k)
    sum = sum + power(q + k);
  const Tensor n = q + kTerms, last = power(n);
  // B(2j) / (2j)!
  constexpr double terms[] = {1.0 / 12,
                              -1.0 / 720,
                              1.0 / 30240,
                              -1.0 / 1209600,
                              1.0 / 47900160,
                              -691.0 / 1307674368000,
                              1.0 / 74724249600,
                              -3617.0 / 10670622842880000,
                              43867.0 / 5109094217170944000};
  Tensor rest = number(x, 0.5), factor = x / n;
  for (int j = 0; j < 9; ++j) {
    rest = rest + factor * terms[j];
    factor = factor * ((x + (2 * j + 1)) / n) * ((x + (2 * j + 2)) / n);
  }
  return sum + (lower(n) / (x - 1) + last * rest);
}

// The coefficients of the n-th derivative of cot as a polynomial of cot.
std::vector<double> cotangent_derivative(std::int64_t n) {
  std::vector<double> p = {0, 1};
  for (std::int64_t i = 0; i < n; ++i) {
    std::vector<double> next(p.size() + 1, 0);
    for (std::size_t k = 1; k < p.size(); ++k) {
      const double slope = p[k] * static_cast<double>(k);
      next[k - 1] -= slope;
      next[k + 1] -= slope;
    }
    p = next;
  }
  return p;
}

} // namespace

Tensor polygamma(std::int64_t n, const Operand& a) {
  constexpr const char* who = "polygamma";
  if (n < 0 || n > 100)
    fail(ErrorKind::Value, "{}: derivative {}; it must be from 0 to 100", who, n);
  if (n == 0)
    return named(who, [&] { return digamma(a); });
  const Tensor given = as_float(a, who);
  const Tensor x = given.to(DType::F64);
  const double order = static_cast<double>(n), sign = n % 2 == 0 ? -1 : 1;
  const double factorial = std::tgamma(order + 1);
  // ψ(x) of x < 1/2 by that of 1 - x and the derivative of π cot πx.
  const Tensor left = x < 0.5, right = where(left, 1 - x, x);
  const Tensor s = number(x, order + 1);
  const Tensor value = hurwitz(
                           s, right, [&](const Tensor& q) { return pow(q, -(order + 1)); },
                           [&](const Tensor& q) { return pow(q, -order); }) *
                       (sign * factorial);
  // The cotangent of πr, -1/2 <= r <= 1/2, is 0 at both ends: there it is the tangent of what is
  // left.
  const Tensor apart = where(left, x - round(x.detach()), number(x, 0.5));
  const Tensor ends = 0.5 - abs(apart), near = where(abs(apart) < 0.25, apart, 0.25);
  const Tensor beyond = tan(ends * M_PI), turn = near * M_PI;
  const Tensor cotangent =
      where(abs(apart) < 0.25, cos(turn) / sin(turn), where(apart < 0, neg(beyond), beyond));
  const std::vector<double> terms = cotangent_derivative(n);
  Tensor slope = number(x, terms.back());
  for (std::size_t i = terms.size() - 1; i-- > 0;)
    slope = slope * cotangent + terms[i];
  const Tensor reflected = value * (n % 2 == 0 ? 1.0 : -1.0) - slope * std::pow(M_PI, order + 1);
  return where(left, reflected, value).to(given.dtype());
}

Tensor zeta(const Arg& x, const Arg& q) {
  auto [given, at] = matched_floats(x, q, "zeta");
  const Tensor s = given.to(DType::F64), y = at.to(DType::F64);
  const Tensor valid = (s > 1) & (y > 0), endless = valid & (s == kInfinity);
  const Tensor safe = where(valid & logical_not(endless), s, 2), place = where(valid, y, 1);
  const Tensor sums = hurwitz(
      safe, place, [&](const Tensor& t) { return pow(t, neg(safe)); },
      [&](const Tensor& t) { return pow(t, 1 - safe); });
  // 1^-x is what is left for x = inf, or what is above all numbers.
  const Tensor limit = where(place < 1, number(y, kInfinity), where(place == 1, number(y, 1), 0));
  const Tensor value = where(endless, limit, sums);
  const Tensor pole = (s == 1) | ((s > 1) & (y <= 0) & (y == floor(y)));
  const double none = std::numeric_limits<double>::quiet_NaN();
  return where(valid, value, where(pole, number(value, kInfinity), none)).to(given.dtype());
}

namespace {

// log(1 + m) - m for -1/2 <= m <= 1/2, by atanh(r) with r = m / (2 + m).
Tensor log1p_less(const Tensor& m) {
  const Tensor r = m / (m + 2), y = square(r);
  Tensor series = number(m, 1.0 / 35);
  for (int k = 15; k >= 0; --k)
    series = series * y + 1.0 / (2 * k + 3);
  return r * (y * series * 2.0 - m);
}

// Temme's expansion (1979; DLMF 8.12): coefficients of η^n in C_k.
constexpr int kTemme = 10, kEta = 26;
using Temme = std::array<std::array<double, kEta>, kTemme>;
Temme temme_coefficients() {
  constexpr int kAll = kEta + 2 * kTemme + 2;
  // x / a = 1 + Σ α_n η^n.
  std::array<double, kAll + 1> alpha{};
  alpha[1] = 1;
  for (int n = 2; n <= kAll; ++n) {
    double sum = alpha[std::size_t(n - 1)];
    for (int j = 2; j < n; ++j)
      sum -= j * alpha[std::size_t(j)] * alpha[std::size_t(n - j + 1)];
    alpha[std::size_t(n)] = sum / (n + 1);
  }
  // Stirling's series Γ*(a) = Σ γ_k / a^k by the logarithm's: k γ_k = Σ j l_j γ_(k-j).
  constexpr double logs[] = {0,          1.0 / 12, 0,           -1.0 / 360, 0,
                             1.0 / 1260, 0,        -1.0 / 1680, 0,          1.0 / 1188};
  std::array<double, kTemme> stirling{1};
  for (int k = 1; k < kTemme; ++k) {
    double sum = 0;
    for (int j = 1; j <= k; ++j)
      sum += j * logs[j] * stirling[std::size_t(k - j)];
    stirling[std::size_t(k)] = sum / k;
  }
  std::array<std::array<double, kAll>, kTemme> all{};
  for (int n = 0; n + 2 <= kAll; ++n)
    all[0][std::size_t(n)] = n == 0 ? -1.0 / 3 : (n + 2) * alpha[std::size_t(n + 2)];
  for (int k = 1; k < kTemme; ++k)
    for (int n = 0; n + 2 < kAll; ++n)
      all[std::size_t(k)][std::size_t(n)] =
          (k % 2 == 0 ? 1 : -1) * stirling[std::size_t(k)] * all[0][std::size_t(n)] +
          (n + 2) * all[std::size_t(k - 1)][std::size_t(n + 2)];
  Temme cut{};
  for (std::size_t k = 0; k < kTemme; ++k)
    for (std::size_t n = 0; n < kEta; ++n)
      cut[k][n] = all[k][n];
  return cut;
}

// log(x^a exp(-x) / Γ(a)), for a and x above 0.
Tensor log_density(const Tensor& a, const Tensor& x) {
  // Beyond 10 by λ = x / a, so that nothing large cancels.
  const Tensor high = a >= 10, large = where(high, a, 10), small = where(high, 1, a);
  const Tensor ratio = where(high, x, 10) / large;
  const Tensor m = (where(high, x, 10) - large) / large, near = abs(m) < 0.5;
  const Tensor slope = where(near, log1p_less(where(near, m, 0)), log(where(near, 1, ratio)) - m);
  const Tensor z = reciprocal(square(large));
  constexpr double terms[] = {1.0 / 12,   -1.0 / 360,      1.0 / 1260, -1.0 / 1680,
                              1.0 / 1188, -691.0 / 360360, 1.0 / 156};
  Tensor series = number(a, terms[6]);
  for (int i = 5; i >= 0; --i)
    series = series * z + terms[i];
  const Tensor beyond =
      large * slope + log(large) * 0.5 - 0.5 * std::log(2 * M_PI) - series / large;
  const Tensor below = small * log(x) - x - lgamma(small);
  return where(high, beyond, below);
}

// The lower and the upper part, for finite a and x above 0.
struct Parts {
  Tensor lower, upper;
};
Parts incomplete(const Tensor& a, const Tensor& x) {
  const Tensor density = exp(log_density(a, x));
  const Tensor uniform = (a > 20) & (abs(x - a) < a * 0.5);
  const Tensor fraction = logical_not(uniform) & (x >= maximum(a + 1, 2));
  const Tensor sum = logical_not(uniform) & logical_not(fraction);
  // 1/a + x/(a (a+1)) + ...
  const Tensor xs = where(sum, x, 0);
  Tensor series = number(a, 1);
  for (int k = 64; k >= 1; --k)
    series = series * (xs / (a + k)) + 1.0;
  const Tensor below = density * series / a;
  // Legendre's continued fraction, from its end.
  const Tensor xf = where(fraction, x, 3), af = where(fraction, a, 1);
  Tensor tail = xf + 101 - af;
  for (int k = 49; k >= 0; --k)
    tail = (xf + (2 * k + 1) - af) - (k + 1 - af) * (k + 1) / tail;
  const Tensor above = density / tail;
  // Temme's uniform expansion.
  static const Temme coefficients = temme_coefficients();
  const Tensor au = where(uniform, a, 30), m = where(uniform, (x - a) / a, 0);
  const Tensor half = maximum(neg(log1p_less(m)), 0); // η² / 2
  const Tensor size = sqrt(half * 2), eta = where(m < 0, neg(size), size);
  Tensor rest = number(a, 0);
  for (std::size_t k = kTemme; k-- > 0;) {
    Tensor c = number(a, coefficients[k][kEta - 1]);
    for (std::size_t n = kEta - 1; n-- > 0;)
      c = c * eta + coefficients[k][n];
    rest = rest / au + c;
  }
  const Tensor r = rest * exp(neg(au * half)) / sqrt(au * (2 * M_PI)), root = eta * sqrt(au * 0.5);
  return {where(uniform, erfc(neg(root)) * 0.5 - r, where(fraction, 1 - above, below)),
          where(uniform, erfc(root) * 0.5 + r, where(fraction, above, 1 - below))};
}

Tensor incomplete_gamma(const Arg& shape, const Arg& place, bool lower, const char* who) {
  auto [given, at] = matched_floats(shape, place, who);
  if (grad_enabled() && given.requires_grad())
    fail(ErrorKind::Unsupported, "{}: has no gradient for its first operand; detach it", who);
  const Tensor a = stopped(given.to(DType::F64)), x = at.to(DType::F64), fixed = stopped(x);
  const Tensor inside = (a > 0) & (fixed > 0) & isfinite(a) & isfinite(fixed);
  const Tensor safe_a = where(inside, a, 1), safe_x = where(inside, fixed, 1);
  const Parts parts = incomplete(safe_a, safe_x);
  Tensor value = stopped(lower ? parts.lower : parts.upper);
  if (grad_enabled() && x.requires_grad()) {
    // The rule of the midpoint has the first and second derivatives, and no value.
    const Tensor change = where(inside, x, 1) - safe_x, middle = safe_x + change * 0.5;
    const Tensor slope = exp(log_density(safe_a, middle)) / middle;
    value = value + change * slope * (lower ? 1.0 : -1.0);
  }
  // 0 of the lower part at x = 0 and at a = inf, 1 at x = inf and at a = 0.
  const Tensor none = ((fixed == 0) & (a > 0)) | ((a == kInfinity) & isfinite(fixed) & (fixed > 0));
  const Tensor whole = ((fixed == kInfinity) & (a >= 0) & isfinite(a)) | ((a == 0) & (fixed > 0));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor edge =
      where(none, number(a, lower ? 0 : 1), where(whole, number(a, lower ? 1 : 0), nan));
  return where(inside, value, edge).to(given.dtype());
}

} // namespace

Tensor gammainc(const Arg& a, const Arg& x) {
  return incomplete_gamma(a, x, true, "gammainc");
}
Tensor gammaincc(const Arg& a, const Arg& x) {
  return incomplete_gamma(a, x, false, "gammaincc");
}

} // namespace egret
