// Many steps of changing sizes, and ever-changing programs: what is kept stays the same.
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/memory.h"
#include "egret/nn.h"
#include "egret/optim.h"
#include "support/sanitized.h"
#include "support/scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <random>
#include <unistd.h>

namespace egret {
namespace {

constexpr std::uint64_t kSoakMiB = 1 << 20;

// Of this process: pages in memory.
std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

// A few plans are explored in the first steps, and in the rest none; memory stays as it is then.
void expect_nothing_kept(const std::function<double()>& step, int first, int rest) {
  Counters before = counters();
  for (int i = 0; i < first; ++i)
    step();
  EXPECT_LE((counters() - before).plan_explorations, 12u);
  const MemoryStats early = memory_stats("cpu");
  const std::uint64_t resident = resident_bytes();
  before = counters();
  double last = 0;
  for (int i = 0; i < rest; ++i)
    last = step();
  EXPECT_TRUE(std::isfinite(last));
  const Counters spent = counters() - before;
  const MemoryStats late = memory_stats("cpu");
  EXPECT_EQ(spent.plan_explorations, 0u);
  EXPECT_LE(late.in_use, early.in_use + kSoakMiB / 4) << early.text() << late.text();
  EXPECT_LE(late.reserved, early.reserved + kSoakMiB) << early.text() << late.text();
  if (!test::kSanitized) {
    EXPECT_LE(resident_bytes(), resident + 24 * kSoakMiB);
  }
}

TEST(Soak, TenThousandStepsOfChangingSizesKeepNothing) {
  Generator random(1);
  nn::Mlp model({16, 32, 4}, random);
  optim::AdamW optimizer(nn::named_parameters(model), {.lr = 1e-3});
  const Tensor data = randn({200, 16}, random).eval();
  const Tensor targets = randint({200}, 0, 4, random).eval();
  std::mt19937 sizes(5);
  const auto step = [&]() -> double {
    const auto n = static_cast<std::int64_t>(2 + sizes() % 198);
    const Tensor loss = cross_entropy(model(data[{Slice(0, n)}]), targets[{Slice(0, n)}]);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    return loss.item();
  };
  expect_nothing_kept(step, 1000, 9000);
}

// Random numbers of changing shapes: noise on the inputs, labels, and masks of dropout. A thousand
// steps, times EGRET_TEST_ROUNDS.
TEST(Soak, StepsThatDrawAtChangingSizesKeepNothing) {
  Generator random(2);
  nn::Mlp model({12, 24, 3}, random);
  const nn::Dropout dropout{0.2};
  optim::Sgd optimizer(nn::named_parameters(model), {.lr = 1e-2});
  std::mt19937 sizes(9);
  const auto step = [&]() -> double {
    const auto n = static_cast<std::int64_t>(2 + sizes() % 120);
    const Tensor x = randn({n, 12}, random) + 0.1 * uniform({n, 12}, -1, 1, random);
    const Tensor y = model(dropout(x, &random));
    const Tensor loss = cross_entropy(y, randint({n}, 0, 3, random));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    return loss.item();
  };
  expect_nothing_kept(step, 400, 1000 * test::rounds() - 400);
}

TEST(Soak, EverChangingProgramsStayWithinTheBoundOfPlans) {
  constexpr std::size_t kBound = kSoakMiB;
  struct Bound {
    Bound() { set_plan_memory(kBound); }
    ~Bound() { set_plan_memory(256 * kSoakMiB); }
  } bound;
  const Tensor x = ones({8}).eval();
  std::mt19937 random(3);
  const std::uint64_t evicted = counters().plans_evicted;
  std::uint64_t most = 0;
  for (int i = 0; i < 120; ++i) {
    Tensor y = x;
    for (int k = 0; k < 8; ++k)
      switch (random() % 5) {
      case 0:
        y = y + x;
        break;
      case 1:
        y = tanh(y);
        break;
      case 2:
        y = y * y;
        break;
      case 3:
        y = maximum(y, x);
        break;
      default:
        y = y - y.mean();
        break;
      }
    EXPECT_FALSE(std::isnan(y.sum().item()));
    most = std::max(most, counters().plan_bytes);
  }
  EXPECT_GT(counters().plans_evicted, evicted);
  EXPECT_LE(most, kBound + kSoakMiB) << "the newest one stays, however large it is";
}

} // namespace
} // namespace egret
