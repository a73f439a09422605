// How far functions are from the exact values: floats of 16 and 8 bits on every bit pattern, f32 on
// EGRET_MATH_SAMPLES patterns (a million) spread over all, within the bounds that docs/math.md
// publishes. EGRET_MATH_PRINT=1 prints what was found.
#include "functions.h"
#include "support/docs.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>

namespace egret {
namespace {

using testing::kInf;

struct Function {
  const char* name;
  std::function<Tensor(const Tensor&)> call;
  double (*exact)(double);
  double ulp = 0; ///< allowed in f32; 0: what docs/math.md states
};

double sigmoid_of(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}

// Correctly rounded, as far as the exact value in f64 is exact.
constexpr double kRounded = 0.5000001;

const Function kFunctions[] = {
    {"exp", exp, std::exp},
    {"exp2", exp2, std::exp2},
    {"expm1", expm1, std::expm1},
    {"log", log, std::log},
    {"log2", log2, std::log2},
    {"log10", log10, std::log10},
    {"log1p", log1p, std::log1p},
    {"sin", sin, std::sin},
    {"cos", cos, std::cos},
    {"tanh", tanh, std::tanh},
    {"erf", erf, std::erf},
    {"erfc", erfc, std::erfc},
    {"sigmoid", egret::sigmoid, sigmoid_of},
    {"asin", asin, std::asin},
    {"acos", acos, std::acos},
    {"atan", atan, std::atan},
    {"sinh", sinh, std::sinh},
    {"cosh", cosh, std::cosh},
    {"asinh", asinh, std::asinh},
    {"acosh", acosh, std::acosh},
    {"atanh", atanh, std::atanh},
    {"tan", tan, std::tan},
    {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }},
    {"sqrt", sqrt, std::sqrt, kRounded},
    {"reciprocal", reciprocal, [](double x) { return 1 / x; }, kRounded},
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

std::uint64_t samples() {
  const char* given = std::getenv("EGRET_MATH_SAMPLES");
  return given ? std::strtoull(given, nullptr, 10) : 1000000;
}

// The largest error is at most `ulp`; 0: what docs/math.md states.
void expect_within(const std::string& name, const std::vector<float>& have, double ulp,
                   const std::function<double(std::size_t)>& exact,
                   const std::function<std::string(std::size_t)>& text) {
  static const auto stated = testing::stated_bounds();
  ASSERT_TRUE(ulp > 0 || stated.contains(name)) << "docs/math.md has no row for " << name;
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < have.size(); ++i)
    if (const double e = error_f32(have[i], exact(i)); !(e <= worst)) {
      worst = e;
      at = i;
    }
  if (std::getenv("EGRET_MATH_PRINT"))
    fmt::print("{} {:.2f} ulp at {}\n", name, worst, text(at));
  EXPECT_LE(worst, ulp > 0 ? ulp : stated.at(name)) << name << " at " << text(at);
}

TEST(Accuracy, F32OverAllPatterns) {
  const std::uint64_t count = samples();
  std::vector<float> values;
  for (std::uint64_t i = 0; i < count; ++i)
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>((i << 32) / count)));
  const Tensor x = tensor(values);
  for (const Function& f : kFunctions)
    expect_within(
        f.name, f.call(x).to_vector(), f.ulp, [&](std::size_t i) { return f.exact(values[i]); },
        [&](std::size_t i) { return fmt::format("{}", values[i]); });
}

// Pairs of any bits, and mostly pairs whose quotient is moderate.
TEST(Accuracy, Atan2OfF32OverPairs) {
  testing::Rng rng(3);
  const auto moderate = [&] {
    const double size = std::ldexp(rng.uniform(1, 2), static_cast<int>(rng.below(40)) - 20);
    return static_cast<float>(rng.chance(0.5) ? -size : size);
  };
  std::vector<float> ys, xs;
  for (std::uint64_t i = 0; i < samples(); ++i)
    for (auto* list : {&ys, &xs})
      list->push_back(i % 4 == 0 ? std::bit_cast<float>(static_cast<std::uint32_t>(rng.bits()))
                                 : moderate());
  expect_within(
      "atan2", atan2(tensor(ys), tensor(xs)).to_vector(), 0,
      [&](std::size_t i) { return std::atan2(double(ys[i]), double(xs[i])); },
      [&](std::size_t i) { return fmt::format("({}, {})", ys[i], xs[i]); });
}

// Low floats are computed in f32 and rounded: the result is one of the two neighbours of the exact
// value, and the nearer one unless f32's own error decides.
TEST(Accuracy, LowFloatsOnEveryPattern) {
  for (DType type : {DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2}) {
    const Tensor x = testing::every_pattern(type);
    const auto values = x.to_vector<double>();
    for (const Function& f : kFunctions) {
      const Tensor y = f.call(x);
      ASSERT_EQ(y.dtype(), type);
      const auto have = y.to_vector<double>();
      int wrong = 0;
      for (std::size_t i = 0; i < values.size() && wrong < 3; ++i) {
        const double want = f.exact(values[i]);
        const auto is = [&](double wanted) { // f8e4m3 rounds what is too large to NaN
          const double rounded = Scalar::of(type, wanted).as_double();
          return std::isnan(rounded) ? std::isnan(have[i]) : have[i] == rounded;
        };
        const bool right = is(want * (1 - 1e-6)) || is(want * (1 + 1e-6));
        wrong += !right;
        EXPECT_TRUE(right) << f.name << " of " << values[i] << " in " << name_of(type) << ": "
                           << have[i] << ", exactly " << want;
      }
    }
  }
}

} // namespace
} // namespace egret
