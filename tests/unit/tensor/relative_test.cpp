// Sizes, bounds of slices and numbers are arguments of plans: what only looks new compiles nothing.
#include "egret/counters.h"
#include "egret/deterministic.h"
#include "egret/explain.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/memory.h"
#include "runtime/runtime.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace egret {
namespace {

// Element i of what ramp() makes.
double at(std::int64_t i) {
  return static_cast<double>(i % 13) * 0.25 - 1;
}

Tensor ramp(std::vector<std::int64_t> sizes) {
  std::int64_t count = 1;
  for (std::int64_t size : sizes)
    count *= size;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    values[static_cast<std::size_t>(i)] = static_cast<float>(at(i));
  return tensor(values, Shape(sizes.begin(), sizes.end()));
}

Counters spent_by(const std::function<void()>& body) {
  const Counters before = counters();
  body();
  return counters() - before;
}

// Nothing that other tests have compiled is known.
class Relative : public ::testing::Test {
protected:
  void SetUp() override { runtime::Runtime::instance().clear_plans(); }
};

TEST_F(Relative, ALoopOverRowsWindowsAndNumbersCompilesInItsFirstPassOnly) {
  constexpr std::int64_t kWide = 7;
  const Tensor x = ramp({20, kWide}), w = ramp({30, kWide});
  const auto pass = [&](std::int64_t i) {
    const Tensor y = (x[i] * w[{Slice(i, i + 4)}] * (0.1 * static_cast<double>(i) + 0.03)).sum(1);
    const std::vector<float> got = y.to_vector();
    ASSERT_EQ(got.size(), 4u);
    for (std::int64_t r = 0; r < 4; ++r) {
      double want = 0;
      for (std::int64_t k = 0; k < kWide; ++k)
        want += at(i * kWide + k) * at((i + r) * kWide + k) * (0.1 * static_cast<double>(i) + 0.03);
      EXPECT_NEAR(got[static_cast<std::size_t>(r)], want, 1e-4) << i;
    }
  };
  EXPECT_EQ(spent_by([&] { pass(0); }).compiles, 1u);
  const Counters rest = spent_by([&] {
    for (std::int64_t i = 1; i < 20; ++i)
      pass(i);
  });
  EXPECT_EQ(rest.compiles, 0u);
  EXPECT_EQ(rest.plan_explorations, 0u);
  EXPECT_EQ(rest.plan_symbolic_hits, 19u);
}

TEST_F(Relative, AProductWithAWindowOfWeightsIsOnePlan) {
  const Tensor x = ramp({6, 24}), w = ramp({90, 16});
  const auto pass = [&](std::int64_t i) {
    const auto got = matmul(x, w[{Slice(i, i + 24)}]).to_vector();
    for (std::int64_t m = 0; m < 6; ++m)
      for (std::int64_t n = 0; n < 16; ++n) {
        double want = 0;
        for (std::int64_t k = 0; k < 24; ++k)
          want += at(m * 24 + k) * at((i + k) * 16 + n);
        ASSERT_NEAR(got[static_cast<std::size_t>(m * 16 + n)], want, 1e-4) << i;
      }
  };
  pass(3);
  EXPECT_EQ(spent_by([&] {
              for (std::int64_t i : {0, 66, 17, 1})
                pass(i);
            }).compiles,
            0u);
}

TEST_F(Relative, TwoHundredRandomSizesAreFewPlans) {
  std::uint32_t random = 12345;
  const auto next = [&](std::uint32_t most) {
    random = random * 1664525u + 1013904223u;
    return static_cast<std::int64_t>(2 + (random >> 8) % most);
  };
  const Counters spent = spent_by([&] {
    for (int i = 0; i < 200; ++i) {
      const std::int64_t n = next(700), m = next(40);
      const Tensor x = ramp({n, m});
      const auto got = (tanh(x * 0.7 + 0.2).sum(1) * 2).to_vector();
      ASSERT_EQ(got.size(), static_cast<std::size_t>(n));
      for (std::int64_t r : {std::int64_t{0}, n / 2, n - 1}) {
        double want = 0;
        for (std::int64_t k = 0; k < m; ++k)
          want += 2 * std::tanh(at(r * m + k) * 0.7 + 0.2);
        ASSERT_NEAR(got[static_cast<std::size_t>(r)], want, 1e-3) << n << " by " << m;
      }
    }
  });
  EXPECT_LE(spent.compiles, 6u);
  EXPECT_GE(spent.plan_symbolic_hits, 190u);
  EXPECT_EQ(spent.plan_explorations + spent.plan_hits, 200u);
}

// The size of a line that is counted here is the product of what it is split into.
TEST_F(Relative, ALineThatIsSplitIntoAxesOfAnySizeIsFewPlans) {
  const auto pass = [](std::int64_t n, std::int64_t m) {
    const Tensor x = arange(n * m * 3).to(DType::F32);
    const Tensor y = (x * 0.0007 + 0.2).reshape({n, 3 * m}).sum(0) * 0.5;
    const auto got = (tanh(y) + 1).to_vector();
    ASSERT_EQ(got.size(), static_cast<std::size_t>(3 * m));
    for (std::int64_t c = 0; c < 3 * m; ++c) {
      double sum = 0;
      for (std::int64_t r = 0; r < n; ++r)
        sum += static_cast<double>(r * 3 * m + c) * 0.0007 + 0.2;
      ASSERT_NEAR(got[static_cast<std::size_t>(c)], std::tanh(sum * 0.5) + 1, 1e-4)
          << n << " by " << m;
    }
  };
  const Counters spent = spent_by([&] {
    for (std::int64_t i = 0; i < 30; ++i)
      pass(2 + i * 17 % 31, 2 + i * 13 % 23);
  });
  EXPECT_LE(spent.plan_explorations, 6u);
  EXPECT_EQ(spent.plan_explorations + spent.plan_hits, 30u);
}

TEST_F(Relative, ADimThatBecomesOneTakesAnotherPlan) {
  const auto run = [](std::int64_t n) {
    const Tensor x = ramp({n, 5});
    return (x + ramp({1, 5})).sum().item();
  };
  const auto want = [](std::int64_t n) {
    double sum = 0;
    for (std::int64_t i = 0; i < 5 * n; ++i)
      sum += at(i) + at(i % 5);
    return sum;
  };
  for (std::int64_t n : {4, 9, 30})
    EXPECT_NEAR(run(n), want(n), 1e-4);
  EXPECT_EQ(spent_by([&] { EXPECT_NEAR(run(1), want(1), 1e-4); }).plan_explorations, 1u);
  EXPECT_EQ(spent_by([&] { EXPECT_NEAR(run(11), want(11), 1e-4); }).compiles, 0u);
}

TEST_F(Relative, AGrowingPrefixIsOnePlanUpToTheWhole) {
  const Tensor cache = ramp({64, 8}), query = ramp({8});
  const auto pass = [&](std::int64_t length) {
    const auto got = (cache[{Slice(0, length)}] * query).sum(1).to_vector();
    ASSERT_EQ(got.size(), static_cast<std::size_t>(length));
    double want = 0;
    for (std::int64_t k = 0; k < 8; ++k)
      want += at((length - 1) * 8 + k) * at(k);
    EXPECT_NEAR(got.back(), want, 1e-4) << length;
  };
  const Counters spent = spent_by([&] {
    for (std::int64_t length = 2; length < 64; ++length)
      pass(length);
  });
  EXPECT_LE(spent.compiles, 4u);
}

TEST_F(Relative, NumbersThatRulesLookForAreArgumentsOnceTheyDiffer) {
  const Tensor x = ramp({9});
  const auto run = [&](double a) {
    const auto got = (x * a + 0.5).to_vector();
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], at(static_cast<std::int64_t>(i)) * a + 0.5, 1e-5) << a;
  };
  run(2);
  run(1);
  EXPECT_EQ(spent_by([&] {
              run(0);
              run(-1);
              run(2);
            }).compiles,
            0u);
}

TEST_F(Relative, GradientsOfOtherSizesAreRight) {
  for (std::int64_t n : {5, 8, 21, 34, 16}) {
    Tensor w = ramp({n});
    w.set_requires_grad();
    (w * w * ramp({3, n})).sum().backward();
    const auto got = w.grad().to_vector();
    for (std::int64_t k = 0; k < n; ++k)
      EXPECT_NEAR(got[static_cast<std::size_t>(k)], 2 * at(k) * (at(k) + at(n + k) + at(2 * n + k)),
                  1e-4)
          << n;
  }
}

// Images, channels, kernels and paddings differ at once: the largest sizes of all together would
// need terabytes.
TEST_F(Relative, ManySizesThatDifferAtOnceDoNotReserveTheProductOfTheirLargest) {
  const auto pass = [&](std::int64_t batch, std::int64_t channels, std::int64_t size,
                        std::int64_t kernel) {
    const Tensor x = ramp({batch, channels, size, size});
    const Tensor w = ramp({channels, channels, kernel, kernel});
    const auto got = conv2d(x, w, {}, {.padding = kernel / 2}).to_vector();
    double want = 0; // in the first corner
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t i = kernel / 2; i < kernel; ++i)
        for (std::int64_t j = kernel / 2; j < kernel; ++j)
          want += at((c * size + i - kernel / 2) * size + j - kernel / 2) *
                  at((c * kernel + i) * kernel + j);
    EXPECT_NEAR(got[0], want, 1e-3);
  };
  reset_memory_peak("cpu");
  pass(32, 128, 7, 3);
  pass(64, 64, 4, 5);
  pass(16, 32, 6, 3);
  EXPECT_LT(memory_stats("cpu").peak, std::uint64_t{1} << 30);
}

TEST_F(Relative, SizesThatAreMetOftenGetAPlanOfTheirOwn) {
  const auto run = [](std::int64_t n) { return ramp({n}).exp().sum().item(); };
  run(40);
  const double other = run(50);
  run(60);
  const Counters spent = spent_by([&] {
    for (int i = 0; i < 100; ++i)
      EXPECT_NEAR(run(50), other, 1e-4);
  });
  EXPECT_EQ(spent.plan_specializations, 1u);
  EXPECT_EQ(spent_by([&] { run(50); }).plan_symbolic_hits, 0u);
  EXPECT_EQ(spent_by([&] { run(60); }).plan_symbolic_hits, 1u);
}

TEST_F(Relative, DeterministicExecutionHasAPlanForEachSize) {
  set_deterministic(true);
  const Counters spent = spent_by([] {
    for (std::int64_t n : {3, 4, 5, 6})
      ramp({n}).sum().item();
  });
  set_deterministic(false);
  EXPECT_EQ(spent.plan_symbolic_hits, 0u);
  EXPECT_EQ(spent.plan_explorations, 4u);
}

TEST_F(Relative, ExplainMakesAndTellsThePlanThatReadingRuns) {
  for (std::int64_t n : {10, 20, 30}) {
    const Tensor y = ramp({n}) * 3 + 1;
    EXPECT_NE(explain(y).find("kernel"), std::string::npos);
    EXPECT_EQ(spent_by([&] { y.eval(); }).compiles, 0u) << n;
  }
}

TEST_F(Relative, AnErrorInASliceLeavesPlansUsable) {
  const Tensor x = ramp({12, 3});
  const auto row = [&](std::int64_t i) { return x[i].sum().item(); };
  const double first = row(2);
  EXPECT_THROW(row(12), Error);
  EXPECT_EQ(spent_by([&] { EXPECT_EQ(row(2), first); }).compiles, 0u);
  EXPECT_EQ(spent_by([&] { row(11); }).compiles, 0u);
}

} // namespace
} // namespace egret
