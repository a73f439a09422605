// Numbers of a program beside tensors of integers that do not hold them.
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"

#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace egret {
namespace {

using Bools = std::vector<bool>;
using Floats = std::vector<float>;
using Ints = std::vector<std::int64_t>;

Tensor bytes() {
  return tensor(std::vector<std::uint8_t>{0, 44, 255});
}

// Masks, shifts, divisors and zero points are known to the code; a loop over others does not
// compile for each.
TEST(Numbers, SmallIntegersAreConstantsOfTheGraph) {
  const Tensor x = arange(64).eval();
  EXPECT_NE(graph_text(x % 7 + 300).find("const 300"), std::string::npos);
  EXPECT_EQ(graph_text(x + 70000).find("const 70000"), std::string::npos);
  EXPECT_EQ(graph_text(x.to(DType::F32) * 7).find("const 7"), std::string::npos);
  const Counters before = counters();
  for (int i = 3; i < 20; ++i)
    EXPECT_EQ((x * i + (i + 1)).eval().to_vector()[63], float(63 * i + i + 1));
  EXPECT_LE((counters() - before).kernels_compiled, 2);
}

TEST(Numbers, DivideIntegersByWhatTheyAre) {
  EXPECT_EQ((bytes() / 300).to_vector(), (Floats{0, 44.0F / 300, 255.0F / 300}));
  EXPECT_EQ((tensor(std::vector<std::uint8_t>{1, 2}) / -2).to_vector(), (Floats{-0.5F, -1}));
  EXPECT_EQ((-200 / tensor(std::vector<std::int8_t>{1, -2})).to_vector(), (Floats{-200, 100}));
}

TEST(Numbers, MeetIntegersAsFloatsInFunctionsOfCalculus) {
  const Tensor a = tensor(std::vector<std::uint8_t>{1, 2});
  EXPECT_EQ(pow(a, -2).to_vector(), (Floats{1, 0.25F}));
  EXPECT_EQ(copysign(a, -1).to_vector(), (Floats{-1, -2}));
  EXPECT_EQ(ldexp(a, -1).to_vector(), (Floats{0.5F, 1}));
  EXPECT_FLOAT_EQ(hypot(a, -300).to_vector()[0], std::hypot(1.0F, 300.0F));
  EXPECT_FLOAT_EQ(atan2(-1, a).to_vector()[0], std::atan2(-1.0F, 1.0F));
  EXPECT_FLOAT_EQ(xlogy(-200, a).to_vector()[1], -200 * std::log(2.0F));
  EXPECT_FLOAT_EQ(logaddexp(a, -300).to_vector()[0], 1);
  EXPECT_EQ(nextafter(a, 300).to_vector()[0], std::nextafter(1.0F, 2.0F));
  EXPECT_EQ(isclose(bytes(), 300).to_vector<bool>(), (Bools{false, false, false}));
}

TEST(Numbers, AreComparedWithIntegersByWhatTheyAre) {
  const Tensor a = bytes();
  const Bools none{false, false, false}, every{true, true, true};
  for (const Tensor& x : {a, a.to(DType::I8), a.to(DType::U16), a.to(DType::I32)}) {
    for (const std::int64_t high : {std::int64_t{1} << 40, std::int64_t{5'000'000'044}}) {
      EXPECT_EQ((x == high).to_vector<bool>(), none);
      EXPECT_EQ((x != high).to_vector<bool>(), every);
      EXPECT_EQ((x < high).to_vector<bool>(), every);
      EXPECT_EQ((x <= high).to_vector<bool>(), every);
      EXPECT_EQ((x > high).to_vector<bool>(), none);
      EXPECT_EQ((x >= -high).to_vector<bool>(), every);
      EXPECT_EQ((high < x).to_vector<bool>(), none);
      EXPECT_EQ((-high <= x).to_vector<bool>(), every);
    }
  }
  EXPECT_EQ((a == 300).to_vector<bool>(), none);
  EXPECT_EQ((a > -1).to_vector<bool>(), every);
  const std::uint64_t vast = std::uint64_t{1} << 63;
  EXPECT_EQ((a.to(DType::I64) < vast).to_vector<bool>(), every);
  EXPECT_EQ((a.to(DType::U64) < vast).to_vector<bool>(), every);
  EXPECT_EQ((a.to(DType::U64) > -1).to_vector<bool>(), every);
  EXPECT_EQ((a == 255).to_vector<bool>(), (Bools{false, false, true}));
}

TEST(Numbers, BoundIntegersByWhatTheyAre) {
  EXPECT_EQ(clamp(bytes(), -1, 300).to_vector<int>(), (std::vector<int>{0, 44, 255}));
  EXPECT_EQ(minimum(bytes(), 300).to_vector<int>(), (std::vector<int>{0, 44, 255}));
  EXPECT_EQ(maximum(-1, bytes()).to_vector<int>(), (std::vector<int>{0, 44, 255}));
  EXPECT_EQ(
      clamp(bytes().to(DType::U64), -1, std::numeric_limits<std::uint64_t>::max()).to_vector<int>(),
      (std::vector<int>{0, 44, 255}));
}

TEST(Numbers, OfSixtyFourBitsKeepTheirSignBesideFloats) {
  constexpr std::uint64_t kVast = (std::uint64_t{1} << 63) + (std::uint64_t{1} << 40);
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  const Tensor one = tensor(std::vector<double>{1});
  EXPECT_EQ((one * kVast).item(), 0x1p63 + 0x1p40);
  EXPECT_EQ((one - kVast).item(), -0x1p63 - 0x1p40);
  EXPECT_EQ((one - kLeast).item(), 0x1p63);
  EXPECT_EQ((kVast / one).item(), 0x1p63 + 0x1p40);
  EXPECT_EQ(full({1}, kVast, DType::F32).item(), 0x1p63 + 0x1p40);
  EXPECT_EQ((tensor({1}) - kLeast).item<std::int64_t>(), kLeast + 1);
  EXPECT_EQ((tensor({1}).to(DType::U64) + kVast).item<std::uint64_t>(), kVast + 1);
}

TEST(Power, OfIntegersByNumbersIsExact) {
  const Tensor a = tensor({3, -3, 1'000'003});
  EXPECT_EQ(pow(a, 0).to_vector<std::int64_t>(), (Ints{1, 1, 1}));
  EXPECT_EQ(pow(a, 1).to_vector<std::int64_t>(), (Ints{3, -3, 1'000'003}));
  EXPECT_EQ(pow(a, 3).to_vector<std::int64_t>(), (Ints{27, -27, 1'000'009'000'027'000'027}));
  EXPECT_EQ(pow(a, 4).dtype(), DType::I64);
  EXPECT_EQ(pow(tensor({3, -3}), 39).to_vector<std::int64_t>(),
            (Ints{4'052'555'153'018'976'267, -4'052'555'153'018'976'267}));
  EXPECT_EQ(pow(tensor({true, false}), 2).to_vector<std::int64_t>(), (Ints{1, 0}));
  EXPECT_EQ(pow(a, 4.0).dtype(), DType::F32);
}

TEST(Power, InF64TakesNumbersInF64) {
  EXPECT_DOUBLE_EQ(float_power(tensor({3}), 0.1).item(), std::pow(3.0, 0.1));
  EXPECT_DOUBLE_EQ(float_power(0.1, tensor({3})).item(), std::pow(0.1, 3.0));
}

// As the remainder says it, which is exact: 1 = 9 · 0.1f + 0.0999….
TEST(FloorDivide, OfFloatsIsTheFloorOfTheExactQuotient) {
  const float inf = std::numeric_limits<float>::infinity();
  const Floats a{1, 6, -1, -499, 7, -7, 7, -7, 0, 5, -5},
      b{0.1F, 0.1F, 1e30F, inf, 2, 2, -2, -2, 3, 0, 0};
  EXPECT_EQ(floor_divide(tensor(a), tensor(b)).to_vector(),
            (Floats{9, 59, -1, -1, 3, -4, -4, 3, 0, inf, -inf}));
  EXPECT_TRUE(std::isnan(floor_divide(tensor(Floats{inf}), 3.0).item()));
  EXPECT_TRUE(std::isnan(floor_divide(tensor({0.0}), 0.0).item()));
  EXPECT_TRUE(std::signbit(floor_divide(tensor({-0.0}), 1.0).item()));
  EXPECT_FALSE(std::signbit(floor_divide(tensor({-0.0}), -1.0).item()));
  EXPECT_EQ(floor_divide(tensor({1.0}).to(DType::BF16), 0.1).item(), 9);
}

TEST(Remainder, WithTheDividendsSignHasSlopeOneAtZero) {
  Tensor a = tensor(std::vector<double>{0, -0.0, 5}).set_requires_grad();
  Tensor b = tensor(std::vector<double>{3, -3, -3}).set_requires_grad();
  const auto slopes = grad({{fmod(a, b).sum()}}, {{a, b}});
  EXPECT_EQ(slopes[0].to_vector<double>(), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(slopes[1].to_vector<double>(), (std::vector<double>{0, 0, 1}));
}

TEST(Angle, AtTheOriginHasNoGradient) {
  Tensor y = tensor({0.0, -0.0, 0.0}).set_requires_grad();
  Tensor x = tensor({0.0, -0.0, 2.0}).set_requires_grad();
  const auto slopes = grad({{atan2(y, x).sum()}}, {{y, x}});
  EXPECT_EQ(slopes[0].to_vector(), (Floats{0, 0, 0.5F}));
  EXPECT_EQ(slopes[1].to_vector(), (Floats{0, 0, 0}));
}

} // namespace
} // namespace egret
