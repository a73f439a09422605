// Functions at their edges: signs of zeros, the ends of a dtype, reductions over no axes.
#include "egret/functional.h"
#include "egret/grad.h"
#include "support/sanitized.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <sys/resource.h>
#include <vector>

namespace egret {
namespace {

TEST(EdgesOfFunctions, OddFunctionsKeepTheSignOfZero) {
  using Function = std::function<Tensor(const Tensor&)>;
  const std::vector<std::pair<std::string, Function>> functions = {
      {"sin", [](const Tensor& x) { return sin(x); }},
      {"tan", [](const Tensor& x) { return tan(x); }},
      {"asin", [](const Tensor& x) { return asin(x); }},
      {"atan", [](const Tensor& x) { return atan(x); }},
      {"sinh", [](const Tensor& x) { return sinh(x); }},
      {"tanh", [](const Tensor& x) { return tanh(x); }},
      {"asinh", [](const Tensor& x) { return asinh(x); }},
      {"atanh", [](const Tensor& x) { return atanh(x); }},
      {"erf", [](const Tensor& x) { return erf(x); }},
      {"erfinv", [](const Tensor& x) { return erfinv(x); }},
      {"round", [](const Tensor& x) { return round(x); }},
      {"atan2", [](const Tensor& x) { return atan2(x, 1.0); }},
  };
  for (const auto& [name, function] : functions)
    for (const DType type : {DType::F32, DType::F64, DType::BF16}) {
      const auto got = function(tensor({-0.0, 0.0}).to(type)).to_vector<double>();
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(got[i], 0) << name << " " << name_of(type);
        EXPECT_EQ(std::signbit(got[i]), i == 0) << name << " " << name_of(type);
      }
      // The gradient there is not the constant's that stands for the value.
      Tensor x = tensor({-0.0, 0.0}).to(type).set_requires_grad();
      if (name == "atan" || name == "asinh") {
        EXPECT_EQ(grad(function(x).sum(), x).to_vector(), (std::vector<float>{1, 1})) << name;
      }
    }
}

TEST(EdgesOfFunctions, RoundKeepsTheSign) {
  const auto got =
      round(tensor({-0.5, -0.3, -0.7, -1.5, -2.5, 0.5, 1.5, 0.49999997, -0.49999997, 8388609.0}))
          .to_vector<double>();
  const std::vector<double> want = {-0.0, -0.0, -1, -2, -2, 0, 2, 0, -0.0, 8388609};
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i], want[i]) << i;
    EXPECT_EQ(std::signbit(got[i]), std::signbit(want[i])) << i;
  }
}

TEST(EdgesOfFunctions, TheLargestNumbers) {
  const double most = std::numeric_limits<double>::max(),
               infinity = std::numeric_limits<double>::infinity();
  const Tensor x = tensor(std::vector<double>{most, -most});
  EXPECT_EQ(i0(x).to_vector<double>(), (std::vector<double>{infinity, infinity}));
  EXPECT_EQ(i1(x).to_vector<double>(), (std::vector<double>{infinity, -infinity}));
  EXPECT_NEAR(i0e(x).to_vector<double>()[0] * 1e155, 1e155 / std::sqrt(most) / std::sqrt(2 * M_PI),
              1e-12);
  EXPECT_EQ(lgamma(x).to_vector<double>(), (std::vector<double>{infinity, infinity}));
}

TEST(EdgesOfFunctions, AReductionOverNoAxesIsAValueOfItsOwn) {
  const std::vector<std::function<Tensor(const Tensor&)>> functions = {
      [](const Tensor& x) { return x.sum(); },  [](const Tensor& x) { return x.prod(); },
      [](const Tensor& x) { return x.max(); },  [](const Tensor& x) { return x.min(); },
      [](const Tensor& x) { return x.mean(); }, [](const Tensor& x) { return amax(x); },
  };
  for (std::size_t i = 0; i < functions.size(); ++i) {
    Tensor x = tensor({2.0f}).reshape({});
    const Tensor y = functions[i](x);
    x += 1;
    EXPECT_EQ(y.item(), 2) << i;
    Tensor z = functions[i](x);
    z += 1;
    EXPECT_EQ(x.item(), 3) << i;
  }
  // Of a leaf it is no leaf: it may be updated.
  Tensor x = scalar(2.0).set_requires_grad();
  Tensor y = x.sum();
  y *= 3;
  y.backward();
  EXPECT_EQ(x.item(), 2);
  EXPECT_EQ(x.grad().item(), 3);
}

TEST(EdgesOfFunctions, ARangeEndsWithinI64) {
  EXPECT_THROW(arange(std::uint64_t{1} << 63), Error);
  EXPECT_THROW(arange(0, ~std::uint64_t{0}, std::uint64_t{1} << 63), Error);
}

TEST(EdgesOfFunctions, PrintingALargeTensorFormatsWhatItShows) {
  const Tensor x = ones({1 << 24}, DType::U8).eval();
  const auto peak = [] {
    rusage use{};
    getrusage(RUSAGE_SELF, &use);
    return use.ru_maxrss; // KiB
  };
  const long before = peak();
  EXPECT_EQ(to_string(x), "[1, 1, 1, ..., 1, 1, 1] u8[16777216]");
  if (!test::kSanitized) { // sanitizers have memory beside each byte
    EXPECT_LT(peak() - before, 300 << 10);
  }
}

TEST(EdgesOfFunctions, ANaNIsPrintedWithoutASign) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(to_string(tensor({nan, std::copysign(nan, -1.0), -0.0})), "[nan, nan, -0] f32[3]");
}

} // namespace
} // namespace egret
