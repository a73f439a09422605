// How far functions of one operand are from the exact values: f16 and bf16 on every bit pattern,
// f32 on EGRET_MATH_SAMPLES patterns (a million) spread over all. EGRET_MATH_PRINT=1 prints what
// was found; docs/math.md publishes it.
#include "functions.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdlib>

namespace egret {
namespace {

using testing::kInf;

struct Function {
  const char* name;
  Tensor (*call)(const Tensor&);
  double (*exact)(double);
  double ulp; ///< allowed in f32
};

double sigmoid_of(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}

const Function kFunctions[] = {
    {"exp", exp, std::exp, 1.1},
    {"exp2", exp2, std::exp2, 1.0},
    {"expm1", expm1, std::expm1, 1.6},
    {"log", log, std::log, 1.0},
    {"log2", log2, std::log2, 1.1},
    {"log10", log10, std::log10, 2.3},
    {"log1p", log1p, std::log1p, 1.6},
    {"sin", sin, std::sin, 1.3},
    {"cos", cos, std::cos, 1.3},
    {"tanh", tanh, std::tanh, 2.7},
    {"erf", erf, std::erf, 1.9},
    {"erfc", erfc, std::erfc, 5},
    {"sigmoid", egret::sigmoid, sigmoid_of, 2.5},
    {"asin", asin, std::asin, 2.7},
    {"acos", acos, std::acos, 3.2},
    {"atan", atan, std::atan, 2.3},
    {"sinh", sinh, std::sinh, 3},
    {"cosh", cosh, std::cosh, 3},
    {"asinh", asinh, std::asinh, 2},
    {"acosh", acosh, std::acosh, 2.3},
    {"atanh", atanh, std::atanh, 2.3},
    {"sqrt", sqrt, std::sqrt, 0.51},
};

// The distance in units in the last place of f32 at the exact value.
double error_f32(float have, double want) {
  if (std::isnan(want))
    return std::isnan(have) ? 0 : kInf;
  if (std::isinf(static_cast<float>(want)) || std::isinf(have))
    return have == static_cast<float>(want) || std::abs(want) > 0x1.fffffcp127 ? 0 : kInf;
  const int exponent = std::max(want == 0 ? -126 : std::ilogb(want), -126);
  return std::abs(static_cast<double>(have) - want) / std::ldexp(1.0, exponent - 23);
}

TEST(Accuracy, F32OverAllPatterns) {
  const char* given = std::getenv("EGRET_MATH_SAMPLES");
  const std::uint64_t count = given ? std::strtoull(given, nullptr, 10) : 1000000;
  std::vector<float> values;
  for (std::uint64_t i = 0; i < count; ++i)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>((i << 32) / count)));
  const Tensor x = tensor(values);
  for (const Function& f : kFunctions) {
    const auto have = f.call(x).to_vector();
    double worst = 0;
    float at = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (const double e = error_f32(have[i], f.exact(values[i])); !(e <= worst)) {
        worst = e;
        at = values[i];
      }
    if (std::getenv("EGRET_MATH_PRINT"))
      fmt::print("{} {:.2f} ulp at {}\n", f.name, worst, at);
    EXPECT_LE(worst, f.ulp) << f.name << " at " << at;
  }
}

// f16 and bf16 are computed in f32 and rounded: the result is one of the two neighbours of the
// exact value, and the nearer one unless f32's own error decides.
TEST(Accuracy, SixteenBitsOnEveryPattern) {
  for (DType type : {DType::F16, DType::BF16}) {
    std::vector<std::uint16_t> bits(65536);
    for (std::size_t i = 0; i < bits.size(); ++i)
      bits[i] = static_cast<std::uint16_t>(i);
    const Tensor x = tensor(bits).bitcast(type);
    const auto values = x.to_vector<double>();
    for (const Function& f : kFunctions) {
      const Tensor y = f.call(x);
      ASSERT_EQ(y.dtype(), type);
      const auto have = y.to_vector<double>();
      int wrong = 0;
      for (std::size_t i = 0; i < values.size() && wrong < 3; ++i) {
        const double want = f.exact(values[i]);
        const double low = Scalar::of(type, want * (1 - 1e-6)).as_double(),
                     high = Scalar::of(type, want * (1 + 1e-6)).as_double();
        const bool right =
            std::isnan(want) ? std::isnan(have[i]) : have[i] == low || have[i] == high;
        wrong += !right;
        EXPECT_TRUE(right) << f.name << " of " << values[i] << " in " << name_of(type) << ": "
                           << have[i] << ", exactly " << want;
      }
    }
  }
}

} // namespace
} // namespace egret
