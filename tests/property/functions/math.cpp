#include "elementwise.h"

#include <algorithm>

namespace egret::testing {

namespace {

double larger_of(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? kNan
         : a == b                       ? (std::signbit(a) ? b : a)
                                        : std::max(a, b);
}
double smaller(double a, double b) {
  return -larger_of(-a, -b);
}
double floor_mod(double a, double b) {
  if (b == 0 || std::isinf(a))
    return kNan;
  const double m = std::fmod(a, b);
  return m != 0 && (m < 0) != (b < 0) ? m + b : m == 0 ? std::copysign(0.0, b) : m;
}
double stable_softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}
double sigmoid(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}
double clip(double x, double low, double high) {
  return x <= low ? low : x >= high ? high : x;
}

Instance where_of(Draw& d) {
  const Sizes shape = d.shape(0, 3);
  return one(
      {d.mask(d.broadcastable(shape)), d.array(shape), d.array(d.broadcastable(shape))},
      [](const Tensors& t) { return where(t[0], t[1], t[2]); },
      [=](const Arrays& a) {
        return Array(shape, [&](const Sizes& at) {
          return a[0].wide(at) != 0 ? a[1].wide(at) : a[2].wide(at);
        });
      });
}

Instance lerp_of(Draw& d) {
  const Sizes shape = d.shape(0, 3);
  const bool number = d.chance();
  return one(
      {d.array(shape), d.array(shape), d.array(shape, 0, 1)},
      [=](const Tensors& t) { return number ? lerp(t[0], t[1], 0.3) : lerp(t[0], t[1], t[2]); },
      [=](const Arrays& a) {
        return Array(shape, [&](const Sizes& at) {
          return a[0][at] + (number ? 0.3 : a[2][at]) * (a[1][at] - a[0][at]);
        });
      });
}

Instance isclose_of(Draw& d) {
  const Sizes shape = d.shape(0, 3);
  const bool nan = d.chance();
  Array a = d.array(shape), b = a;
  for (double& value : b.values)
    if (d.chance(0.3))
      value += d.pick({1e-9, 0.5, -0.5});
  return one(
      {a, b}, [=](const Tensors& t) { return isclose(t[0], t[1], 1e-2, 1e-3, nan); },
      [=](const Arrays& x) {
        return zip(x[0], x[1],
                   [=](double p, double q) {
                     return double(
                         p == q || (nan && std::isnan(p) && std::isnan(q)) ||
                         (std::isfinite(q) && std::abs(p - q) <= 1e-3 + 1e-2 * std::abs(q)));
                   })
            .as(DType::Bool);
      });
}

Instance prelu_of(Draw& d) {
  Sizes shape = d.shape(2, 3);
  const bool single = d.chance();
  return one(
      {d.array(shape), d.array({single ? 1 : shape[1]})},
      [](const Tensors& t) { return prelu(t[0], t[1]); },
      [=](const Arrays& a) {
        return Array(shape, [&](const Sizes& at) {
          const double x = a[0][at];
          return x > 0 ? x : x * a[1].values[single ? 0 : std::size_t(at[1])];
        });
      });
}

Instance glu_of(Draw& d) {
  Sizes shape = d.shape(1, 3);
  const auto axis = d.axis(shape.size());
  shape[axis.axis] *= 2;
  return one(
      {d.array(shape)}, [=](const Tensors& t) { return glu(t[0], axis.given); },
      [=](const Arrays& a) {
        return lines(a[0], axis.axis, [](const std::vector<double>& v) {
          const std::size_t half = v.size() / 2;
          std::vector<double> r;
          for (std::size_t i = 0; i < half; ++i)
            r.push_back(v[i] * sigmoid(v[half + i]));
          return r;
        });
      });
}

} // namespace

std::vector<Row> math_rows() {
  const Options numbers{.types = Types::Numbers}, whole_exact{.types = Types::Numbers, .slack = 0},
      calculus{.types = Types::All, .result = Result::Float},
      compare{.types = Types::All, .result = Result::Bool, .gradient = false, .slack = 0},
      positive{.low = 0.2, .high = 3}, inside{.low = -0.9, .high = 0.9};
  using A = const Arg&;
  using T = const Tensor&;
  std::vector<Row> rows = {
      binary(
          "add", add, [](double a, double b) { return a + b; }, numbers),
      binary(
          "sub", sub, [](double a, double b) { return a - b; }, numbers),
      binary(
          "mul", mul, [](double a, double b) { return a * b; }, numbers),
      binary("div", div, [](double a, double b) { return a / b; },
             {.types = Types::All, .result = Result::Float, .gradient = false}),
      binary("div differentiated", div, [](double a, double b) { return a / b; },
             {.low = 0.3, .high = 2, .special = false}),
      binary("mod", mod, floor_mod, {.low = 0.3, .high = 4}),
      binary("remainder", remainder, floor_mod, {.gradient = false, .slack = 0}),
      binary("fmod", fmod, [](double a, double b) { return std::fmod(a, b); },
             {.gradient = false, .slack = 0}),
      binary("fmod differentiated", fmod, [](double a, double b) { return std::fmod(a, b); },
             {.low = 0.3, .high = 4}),
      binary("maximum", maximum, larger_of, {.types = Types::All, .slack = 0}),
      binary("minimum", minimum, smaller, {.types = Types::All, .slack = 0}),
      binary(
          "pow", [](A a, A b) { return pow(a, b); },
          [](double a, double b) { return std::pow(a, b); }, {.gradient = false, .slack = 4}),
      binary(
          "pow differentiated", [](A a, A b) { return pow(a, b); },
          [](double a, double b) { return std::pow(a, b); },
          {.low = 0.3, .high = 2, .special = false, .slack = 4}),
      binary("atan2", atan2, [](double a, double b) { return std::atan2(a, b); }),
      binary("hypot", hypot, [](double a, double b) { return std::hypot(a, b); }),
      binary("copysign", copysign, [](double a, double b) { return std::copysign(a, b); },
             {.slack = 0}),
      binary("logaddexp", logaddexp,
             [](double a, double b) {
               if (a == b)
                 return a + std::log(2.0);
               return larger_of(a, b) + std::log1p(std::exp(-std::abs(a - b)));
             }),
      binary("logaddexp2", logaddexp2,
             [](double a, double b) {
               if (a == b)
                 return a + 1;
               return larger_of(a, b) + std::log2(1 + std::exp2(-std::abs(a - b)));
             }),
      binary("xlogy", xlogy,
             [](double a, double b) { return a == 0 && !std::isnan(b) ? 0 : a * std::log(b); },
             {.gradient = false}),
      binary("xlogy differentiated", xlogy, [](double a, double b) { return a * std::log(b); },
             {.low = 0.2, .high = 3, .special = false}),
      binary(
          "eq", eq, [](double a, double b) { return double(a == b); }, compare),
      binary(
          "ne", ne, [](double a, double b) { return double(a != b); }, compare),
      binary(
          "lt", lt, [](double a, double b) { return double(a < b); }, compare),
      binary(
          "le", le, [](double a, double b) { return double(a <= b); }, compare),
      binary(
          "gt", gt, [](double a, double b) { return double(a > b); }, compare),
      binary(
          "ge", ge, [](double a, double b) { return double(a >= b); }, compare),
      binary(
          "logical_and", logical_and, [](double a, double b) { return double(a != 0 && b != 0); },
          compare),
      binary(
          "logical_or", logical_or, [](double a, double b) { return double(a != 0 || b != 0); },
          compare),
      binary(
          "logical_xor", logical_xor,
          [](double a, double b) { return double((a != 0) != (b != 0)); }, compare),
      unary(
          "logical_not", logical_not, [](double a) { return double(a == 0); }, compare),
      unary(
          "neg", neg, [](double a) { return -a; }, whole_exact),
      unary("abs", abs, [](double a) { return std::abs(a); },
            {.low = 0.1, .types = Types::All, .slack = 0}),
      unary("sign", sign,
            [](double a) { return std::isnan(a) ? a : double(a > 0) - double(a < 0); },
            {.types = Types::All, .gradient = false}),
      unary(
          "square", square, [](double a) { return a * a; }, numbers),
      unary("reciprocal", reciprocal, [](double a) { return 1 / a; },
            {.low = 0.3, .types = Types::All, .result = Result::Float, .special = false}),
      unary("sqrt", sqrt, [](double a) { return std::sqrt(a); },
            {.low = 0.2, .types = Types::All, .result = Result::Float}),
      unary("rsqrt", rsqrt, [](double a) { return 1 / std::sqrt(a); },
            {.low = 0.2, .types = Types::Floats}),
      unary(
          "exp", exp, [](double a) { return std::exp(a); }, calculus),
      unary(
          "exp2", exp2, [](double a) { return std::exp2(a); }, calculus),
      unary(
          "expm1", expm1, [](double a) { return std::expm1(a); }, calculus),
      unary(
          "log", log, [](double a) { return std::log(a); }, positive),
      unary(
          "log2", log2, [](double a) { return std::log2(a); }, positive),
      unary(
          "log10", log10, [](double a) { return std::log10(a); }, positive),
      unary(
          "log1p", log1p, [](double a) { return std::log1p(a); }, inside),
      unary(
          "logit", [](T a) { return logit(a, 0.05); },
          [](double a) {
            const double p = std::isnan(a) ? a : std::clamp(a, 0.05, 0.95);
            return std::log(p / (1 - p));
          },
          {.low = 0.1, .high = 0.9}),
      unary(
          "sin", sin, [](double a) { return std::sin(a); }, calculus),
      unary(
          "cos", cos, [](double a) { return std::cos(a); }, calculus),
      unary("tan", tan, [](double a) { return std::tan(a); },
            {.low = -1.3, .high = 1.3, .slack = 4}),
      unary(
          "asin", asin, [](double a) { return std::asin(a); }, inside),
      unary(
          "acos", acos, [](double a) { return std::acos(a); }, inside),
      unary(
          "atan", atan, [](double a) { return std::atan(a); }, calculus),
      unary(
          "sinh", sinh, [](double a) { return std::sinh(a); }, calculus),
      unary(
          "cosh", cosh, [](double a) { return std::cosh(a); }, calculus),
      unary(
          "tanh", tanh, [](double a) { return std::tanh(a); }, calculus),
      unary(
          "asinh", asinh, [](double a) { return std::asinh(a); }, calculus),
      unary("acosh", acosh, [](double a) { return std::acosh(a); }, {.low = 1.2, .high = 5}),
      unary(
          "atanh", atanh, [](double a) { return std::atanh(a); }, inside),
      unary(
          "erf", erf, [](double a) { return std::erf(a); }, calculus),
      unary(
          "erfc", erfc, [](double a) { return std::erfc(a); }, calculus),
      unary("sinc", sinc, [](double a) { return a == 0 ? 1 : std::sin(M_PI * a) / (M_PI * a); },
            {.slack = 4}),
      unary("deg2rad", deg2rad, [](double a) { return a * M_PI / 180; }),
      unary("rad2deg", rad2deg, [](double a) { return a * 180 / M_PI; }),
      unary("floor", floor, [](double a) { return std::floor(a); },
            {.types = Types::All, .gradient = false, .slack = 0}),
      unary("ceil", ceil, [](double a) { return std::ceil(a); },
            {.types = Types::All, .gradient = false, .slack = 0}),
      unary("trunc", trunc, [](double a) { return std::trunc(a); },
            {.types = Types::All, .gradient = false, .slack = 0}),
      unary("round", round, [](double a) { return std::nearbyint(a); },
            {.types = Types::All, .gradient = false}),
      unary("frac", frac, [](double a) { return std::isinf(a) ? kNan : a - std::trunc(a); }),
      unary("signbit", signbit, [](double a) { return double(std::signbit(a) && !std::isnan(a)); },
            {.types = Types::Numbers, .result = Result::Bool, .gradient = false, .special = false}),
      unary(
          "isnan", isnan, [](double a) { return double(std::isnan(a)); }, compare),
      unary(
          "isinf", isinf, [](double a) { return double(std::isinf(a)); }, compare),
      unary(
          "isfinite", isfinite, [](double a) { return double(std::isfinite(a)); }, compare),
      unary(
          "clamp", [](T a) { return clamp(a, -1, 1); },
          [](double a) { return std::isnan(a) ? a : std::clamp(a, -1.0, 1.0); },
          {.types = Types::Floats}),
      unary(
          "masked_fill", [](T a) { return masked_fill(a, a < 0, 7); },
          [](double a) { return a < 0 ? 7 : a; }, {.types = Types::Numbers}),
      unary(
          "nan_to_num", [](T a) { return nan_to_num(a, 3, 5, -5); },
          [](double a) {
            return std::isnan(a) ? 3 : a == kInf ? 5 : a == -kInf ? -5 : a;
          },
          {.types = Types::Numbers, .slack = 0}),
      {"where", where_of, Types::All, true, true, 0},
      {"lerp", lerp_of, Types::Floats, true, false},
      {"isclose", isclose_of, Types::Floats, false, true, 0},
  };
  auto integer = [&](std::string name, Binary call, Plain2 plain) {
    rows.push_back({std::move(name),
                    [=](Draw& d) {
                      const Sizes shape = d.shape(0, 3);
                      return one(
                          {d.integers(shape, -20, 20), d.integers(shape, -5, 5)},
                          [=](const Tensors& t) { return call(t[0], t[1]); },
                          [=](const Arrays& a) { return zip(a[0], a[1], plain).as(DType::I64); });
                    },
                    Types::Floats, false});
  };
  integer("mod of integers", mod, [](double a, double b) { return b == 0 ? 0 : floor_mod(a, b); });
  integer("fmod of integers", fmod,
          [](double a, double b) { return b == 0 ? 0 : std::fmod(a, b); });
  integer("floor_divide", floor_divide,
          [](double a, double b) { return b == 0 ? 0 : std::floor(a / b); });
  integer(
      "bitwise_not", [](A a, A) { return bitwise_not(a.tensor()); },
      [](double a, double) { return -a - 1; });
  return rows;
}

std::vector<Row> activation_rows() {
  using T = const Tensor&;
  const Options finite{.special = false, .slack = 2};
  return {
      unary("sigmoid", egret::sigmoid, sigmoid),
      unary("relu", relu, [](double a) { return a <= 0 ? 0 : a; }, {.slack = 2}),
      unary(
          "leaky_relu", [](T a) { return leaky_relu(a, 0.1); },
          [](double a) { return a > 0 ? a : a * 0.1; }, finite),
      unary(
          "elu", [](T a) { return elu(a, 1.5); },
          [](double a) { return a > 0 ? a : 1.5 * std::expm1(a); }, finite),
      unary(
          "gelu", [](T a) { return gelu(a); },
          [](double a) { return a / 2 * (1 + std::erf(a / std::sqrt(2))); }, finite),
      unary(
          "gelu by tanh", [](T a) { return gelu(a, Gelu::Tanh); },
          [](double a) {
            return a / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a)));
          },
          finite),
      unary(
          "silu", silu, [](double a) { return a * sigmoid(a); }, finite),
      unary("softplus", egret::softplus, stable_softplus, finite),
      unary("log_sigmoid", log_sigmoid, [](double a) { return -stable_softplus(-a); },
            {.low = -5, .high = 5, .special = false}),
      unary("selu", selu,
            [](double a) {
              return 1.0507009873554805 * (a > 0 ? a : 1.6732632423543772 * std::expm1(a));
            }),
      unary(
          "celu", [](T a) { return celu(a, 0.7); },
          [](double a) { return a > 0 ? a : 0.7 * std::expm1(a / 0.7); }),
      unary(
          "mish", mish, [](double a) { return a * std::tanh(stable_softplus(a)); }, finite),
      unary("relu6", relu6, [](double a) { return clip(a, 0, 6); }, {.low = -2, .high = 8}),
      unary(
          "hardtanh", [](T a) { return hardtanh(a, -0.5, 0.75); },
          [](double a) { return clip(a, -0.5, 0.75); }),
      unary("hardsigmoid", hardsigmoid, [](double a) { return clip(a + 3, 0, 6) / 6; },
            {.low = -4, .high = 4}),
      unary("hardswish", hardswish, [](double a) { return a * clip(a + 3, 0, 6) / 6; },
            {.low = -4, .high = 4, .special = false}),
      unary(
          "hardshrink", [](T a) { return hardshrink(a, 0.4); },
          [](double a) { return std::abs(a) <= 0.4 ? 0 : a; }),
      unary(
          "softshrink", [](T a) { return softshrink(a, 0.4); },
          [](double a) {
            return a > 0.4 ? a - 0.4 : a < -0.4 ? a + 0.4 : std::isnan(a) ? a : 0;
          }),
      unary("tanhshrink", tanhshrink, [](double a) { return a - std::tanh(a); }),
      unary("softsign", softsign, [](double a) { return a / (1 + std::abs(a)); }),
      unary(
          "threshold", [](T a) { return threshold(a, 0.4, 9); },
          [](double a) { return a <= 0.4 ? 9 : a; }, {.types = Types::Floats}),
      {"prelu", prelu_of, Types::Floats, true, false},
      {"glu", glu_of, Types::Floats, true, false},
  };
}

} // namespace egret::testing
