// Functions beyond those of calculus, and small compositions.
#include "elementwise.h"

#include <algorithm>

namespace egret::testing {

namespace {

// The x with erf(x) = y, by halving.
double inverse_erf(double y) {
  if (std::isnan(y) || std::abs(y) > 1)
    return kNan;
  if (std::abs(y) == 1)
    return y * kInf;
  double low = 0, high = 6;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    const bool below =
        std::abs(y) < 0.5 ? std::erf(middle) < std::abs(y) : std::erfc(middle) > 1 - std::abs(y);
    (below ? low : high) = middle;
  }
  return std::copysign(low, y);
}

// By differences of log Γ far to the right, where they are accurate, and the recurrence.
double psi(double x) {
  if (std::isnan(x) || x == -kInf || (x < 0 && x == std::floor(x)))
    return kNan;
  if (x == 0)
    return std::copysign(kInf, -x);
  if (x == kInf)
    return kInf;
  double sum = 0;
  for (; x < 60; ++x)
    sum -= 1 / x;
  const double z = 1 / (x * x);
  return sum + std::log(x) - 0.5 / x - z * (1.0 / 12 - z * (1.0 / 120 - z / 252));
}

// The next number of the instance's dtype, found among all neighbours of the bits.
double next(double a, double b, DType type) {
  if (std::isnan(a) || std::isnan(b))
    return kNan;
  if (a == b)
    return b;
  Scalar s = Scalar::of(type, a);
  const std::uint64_t top = std::uint64_t{1} << (8 * size_of(type) - 1);
  if (a == 0)
    s.bits = (std::signbit(b) ? top : 0) | 1;
  else
    s.bits += (b > a) == (a > 0) ? 1 : -1;
  return s.as_double();
}

Instance nextafter_of(Draw& d) {
  const Sizes shape = d.shape(0, 3);
  const DType type = d.dtype;
  return one(
      {d.array(shape), d.array(d.broadcastable(shape))},
      [](const Tensors& t) { return nextafter(t[0], t[1]); },
      [=](const Arrays& a) {
        return zip(a[0], a[1], [=](double x, double y) { return next(x, y, type); });
      });
}

Instance ldexp_of(Draw& d) {
  const Sizes shape = d.shape(0, 3);
  return one(
      {d.array(shape), d.integers(shape, -6, 6, DType::I32)},
      [](const Tensors& t) { return ldexp(t[0], t[1]); },
      [](const Arrays& a) {
        return zip(a[0], a[1], [](double x, double n) { return x * std::exp2(n); });
      });
}

Instance float_power_of(Draw& d) {
  const Sizes shape = d.shape(0, 3);
  return one(
      {d.array(shape, 0.3, 2), d.array(shape)},
      [](const Tensors& t) { return float_power(t[0], t[1]); },
      [](const Arrays& a) {
        return zip(a[0], a[1], [](double x, double y) { return std::pow(x, y); }).as(DType::F64);
      });
}

Instance addc_of(Draw& d, bool divide) {
  const Sizes shape = d.shape(0, 3);
  return one(
      {d.array(shape), d.array(d.broadcastable(shape)), d.array(shape, 0.5, 2)},
      [=](const Tensors& t) {
        return divide ? addcdiv(t[0], t[1], t[2], 0.5) : addcmul(t[0], t[1], t[2], 0.5);
      },
      [=](const Arrays& a) {
        return Array(shape, [&](const Sizes& at) {
          const double b = a[1].wide(at), c = a[2][at];
          return a[0][at] + 0.5 * (divide ? b / c : b * c);
        });
      });
}

Instance clamp_of(Draw& d) {
  const Sizes shape = d.shape(0, 3);
  const int bounds = int(d.below(3)); // both, the lower, the upper one
  return one(
      {d.array(shape), d.array(d.broadcastable(shape), -1.5, 0.5),
       d.array(d.broadcastable(shape), -0.5, 1.5)},
      [=](const Tensors& t) {
        return clamp(t[0], bounds == 2 ? Tensor() : t[1], bounds == 1 ? Tensor() : t[2]);
      },
      [=](const Arrays& a) {
        return Array(shape, [&](const Sizes& at) {
          double x = a[0][at];
          if (bounds != 2)
            x = std::max(x, a[1].wide(at));
          return bounds == 1 ? x : std::min(x, a[2].wide(at));
        });
      });
}

// exp(x²) erfc(x) by its continued fraction (Laplace) where the product underflows.
double scaled_erfc(double x) {
  if (x < 2)
    return std::exp(x * x) * std::erfc(x);
  double f = x;
  for (int k = 200; k > 0; --k)
    f = x + k / 2.0 / f;
  return 1 / (f * std::sqrt(M_PI));
}

double log_normal(double x) {
  return x > -2 ? std::log(0.5 * std::erfc(-x * M_SQRT1_2))
                : std::log(scaled_erfc(-x * M_SQRT1_2) / 2) - x * x / 2;
}

// By halves.
double normal_quantile(double p) {
  if (!(p > 0 && p < 1))
    return p == 0 ? -kInf : p == 1 ? kInf : kNan;
  double low = -40, high = 40;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle * M_SQRT1_2) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

double entropy(double x) {
  return std::isnan(x) ? x : x > 0 ? -x * std::log(x) : x == 0 ? 0 : -kInf;
}

double times_log1p(double a, double b) {
  return a == 0 && !std::isnan(b) ? 0 : a * std::log1p(b);
}

double bessel(int order, double x) {
  const double y = std::cyl_bessel_i(order, std::abs(x));
  return order == 1 && x < 0 ? -y : y;
}

Instance multigammaln_of(Draw& d) {
  const Sizes shape = d.shape(0, 2);
  const std::int64_t p = d.between(1, 4);
  return one(
      {d.array(shape, 2, 6)}, [=](const Tensors& t) { return multigammaln(t[0], p); },
      [=](const Arrays& a) {
        return map(a[0], [=](double x) {
          double y = double(p * (p - 1)) / 4 * std::log(M_PI);
          for (std::int64_t i = 0; i < p; ++i)
            y += std::lgamma(x - double(i) / 2);
          return y;
        });
      });
}

double heavy(double x, double at_zero) {
  return std::isnan(x) ? x : x == 0 ? at_zero : x < 0 ? 0 : 1;
}

} // namespace

std::vector<Row> special_rows() {
  return {
      unary("erfinv", erfinv, inverse_erf, {.low = -1, .high = 1, .slack = 4}),
      unary("lgamma", lgamma, [](double x) { return std::lgamma(x); },
            {.low = -4, .high = 9, .slack = 4}),
      unary("digamma", digamma, psi, {.low = -4, .high = 9, .slack = 16}),
      unary("erfcx", erfcx, scaled_erfc, {.low = -2, .high = 12, .special = false, .slack = 8}),
      unary("ndtr", ndtr, [](double x) { return 0.5 * std::erfc(-x * M_SQRT1_2); }),
      unary("log_ndtr", log_ndtr, log_normal,
            {.low = -12, .high = 6, .special = false, .slack = 8}),
      unary("ndtri", ndtri, normal_quantile, {.low = 0.01, .high = 0.99, .slack = 8}),
      unary("entr", entr, entropy, {.low = 0.05, .high = 3}),
      binary("xlog1py", xlog1py, times_log1p, {.low = -0.75, .slack = 4}),
      unary("i0", i0, [](double x) { return bessel(0, x); },
            {.low = -4, .high = 4, .special = false, .slack = 16}),
      unary("i1", i1, [](double x) { return bessel(1, x); },
            {.low = -4, .high = 4, .special = false, .slack = 16}),
      unary("i0e", i0e, [](double x) { return bessel(0, x) * std::exp(-std::abs(x)); },
            {.low = -25, .high = 30, .special = false, .slack = 16}),
      unary("i1e", i1e, [](double x) { return bessel(1, x) * std::exp(-std::abs(x)); },
            {.low = -25, .high = 30, .special = false, .slack = 16}),
      {"multigammaln", multigammaln_of, Types::Floats, true, false, 8},
      binary("heaviside", heaviside, heavy, {.types = Types::Numbers, .gradient = false}),
      binary("fmax", fmax, [](double a, double b) { return std::fmax(a, b); },
             {.types = Types::Numbers}),
      binary("fmin", fmin, [](double a, double b) { return std::fmin(a, b); },
             {.types = Types::Numbers}),
      {"nextafter", nextafter_of, Types::Floats, false, true, 0},
      {"ldexp", ldexp_of, Types::Floats, true, false, 2},
      {"float_power", float_power_of, Types::Floats, true, false, 2},
      {"addcmul", [](Draw& d) { return addc_of(d, false); }, Types::Floats, true, false, 4},
      {"addcdiv", [](Draw& d) { return addc_of(d, true); }, Types::Floats, true, false, 4},
      {"clamp between tensors", clamp_of, Types::Numbers, true, false},
  };
}

} // namespace egret::testing
