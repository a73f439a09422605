// The numbers themselves, their distributions, and the state's advance.
#include "egret/random.h"

#include "egret/counters.h"
#include "egret/functional.h"
#include "runtime/runtime.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace egret {
namespace {

// squares32 of Widynski 2020, in plain C++.
std::uint32_t squares(std::uint64_t counter, std::uint64_t key) {
  std::uint64_t x = counter * key, y = x, z = y + key;
  x = x * x + y;
  x = (x >> 32) | (x << 32);
  x = x * x + z;
  x = (x >> 32) | (x << 32);
  x = x * x + y;
  x = (x >> 32) | (x << 32);
  return static_cast<std::uint32_t>((x * x + z) >> 32);
}

TEST(Random, BitsAreThoseOfSquares) {
  Generator g(42);
  const auto key = g.key.item<std::uint64_t>();
  const auto first = g.bits({5}).to_vector<std::uint64_t>();
  const auto next = g.bits({2, 2}).to_vector<std::uint64_t>();
  for (std::uint64_t i = 0; i < 5; ++i)
    EXPECT_EQ(first[i], squares(i, key));
  for (std::uint64_t i = 0; i < 4; ++i)
    EXPECT_EQ(next[i], squares(5 + i, key));
  EXPECT_EQ(g.counter.item<std::uint64_t>(), 9u);
}

TEST(Random, KeysHaveDifferentDigits) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const auto key = Generator(seed).key.item<std::uint64_t>();
    keys.insert(key);
    EXPECT_EQ(key & 1, 1u);
    for (std::uint64_t half : {key >> 32, key & 0xffffffffu}) {
      std::set<std::uint64_t> digits;
      for (int i = 0; i < 8; ++i)
        digits.insert(half >> (4 * i) & 15);
      EXPECT_EQ(digits.size(), 8u) << std::hex << key;
      EXPECT_EQ(digits.count(0), 0u) << std::hex << key;
    }
  }
  EXPECT_EQ(keys.size(), 2000u);
}

TEST(Random, EveryEngineDrawsTheSameNumbers) {
  auto draw = [](runtime::Engine engine) {
    auto& runtime = runtime::Runtime::instance();
    const auto before = runtime.engine();
    runtime.use(engine);
    Generator g(7);
    auto values = rand({100}, g).to_vector();
    const auto ints = randint({100}, -5, 1000000, g).to_vector<float>();
    values.insert(values.end(), ints.begin(), ints.end());
    runtime.use(before);
    return values;
  };
  const auto cpu = draw(runtime::Engine::Compiled);
  EXPECT_EQ(cpu, draw(runtime::Engine::Reference));
  EXPECT_EQ(cpu, draw(runtime::Engine::Interpreter));
}

TEST(Random, SeedStartsAgainAndCopiesShareTheState) {
  Generator g(1);
  Generator same = g;
  const auto a = rand({4}, g).to_vector();
  const auto b = rand({4}, same).to_vector();
  EXPECT_NE(a, b);
  g.seed(1);
  EXPECT_EQ(rand({4}, same).to_vector(), a);
  g.seed(2);
  EXPECT_NE(rand({4}, g).to_vector(), a);
}

TEST(Random, DrawsOfALoopShareTheirPlan) {
  Generator g(3);
  rand({16}, g).eval();
  const Counters before = counters();
  for (int i = 0; i < 5; ++i)
    rand({16}, g).eval();
  EXPECT_EQ((counters() - before).compiles, 0u);
}

// A loop that draws at 30 sizes of each of some shapes compiles a few plans, and every number is
// the one of its place.
TEST(Random, DrawsOfChangingSizesShareTheirPlans) {
  runtime::Runtime::instance().clear_plans();
  Generator g(5);
  const auto key = g.key.item<std::uint64_t>();
  std::uint32_t state = 7;
  const auto size = [&](std::uint32_t most) {
    state = state * 1664525u + 1013904223u;
    return static_cast<std::int64_t>(2 + (state >> 8) % most);
  };
  std::uint64_t drawn = 0; // from the generator
  const auto expect_bits = [&](const Shape& shape) {
    const auto got = g.bits(shape).to_vector<std::uint64_t>();
    ASSERT_EQ(got.size(), static_cast<std::size_t>(element_count(shape).value()));
    for (std::uint64_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], squares(drawn + i, key)) << to_string(shape);
    drawn += got.size();
  };
  const Counters before = counters();
  for (int i = 0; i < 30; ++i) {
    const std::int64_t n = size(90), m = size(20);
    expect_bits({n});
    expect_bits({n, m});
    expect_bits({2, n, m});
    expect_bits({n, 3});
    expect_bits({4, n, 5, m});
  }
  const Counters spent = counters() - before;
  EXPECT_LE(spent.plan_explorations, 30u) << "of five shapes, 30 sizes each";
  EXPECT_EQ(spent.plan_explorations + spent.plan_hits, 150u);
}

// The numbers that one draw gives do not depend on what was drawn before, of whatever size.
TEST(Random, DistributionsOfChangingSizesShareTheirPlans) {
  runtime::Runtime::instance().clear_plans();
  const auto draw = [](std::int64_t n, std::int64_t m) {
    Generator g(static_cast<std::uint64_t>(n + m));
    auto values = randn({n, m}, g).to_vector<double>();
    for (const Tensor& more :
         {rand({n, m}, g, DType::F64), randn({n}, g, DType::F64), uniform({n, m}, -1, 1, g),
          randint({n, m}, 0, 9, g).to(DType::F64), bernoulli({m, n}, 0.3, g).to(DType::F64)}) {
      const auto of_more = more.to_vector<double>();
      values.insert(values.end(), of_more.begin(), of_more.end());
    }
    return values;
  };
  std::vector<std::vector<double>> drawn;
  const auto sizes = [](std::int64_t i) { return std::pair(2 + i * 37 % 61, 3 + i * 11 % 29); };
  const Counters before = counters();
  for (std::int64_t i = 0; i < 30; ++i)
    drawn.push_back(draw(sizes(i).first, sizes(i).second));
  EXPECT_LE((counters() - before).compiles, 36u) << "of six distributions, 30 sizes each";
  auto& runtime = runtime::Runtime::instance();
  const auto engine = runtime.engine();
  runtime.use(runtime::Engine::Reference);
  for (std::int64_t i = 0; i < 30; ++i) {
    const auto want = draw(sizes(i).first, sizes(i).second);
    const auto& got = drawn[static_cast<std::size_t>(i)];
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t k = 0; k < got.size(); ++k)
      ASSERT_NEAR(got[k], want[k], 1e-5) << i << " at " << k;
  }
  runtime.use(engine);
}

struct Moments {
  double mean, variance, least, most;
};
Moments moments(const Tensor& t) {
  const auto values = t.to_vector<double>();
  Moments m{0, 0, values[0], values[0]};
  for (double v : values) {
    m.mean += v / static_cast<double>(values.size());
    m.least = std::min(m.least, v);
    m.most = std::max(m.most, v);
  }
  for (double v : values)
    m.variance += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
  return m;
}

TEST(Random, Distributions) {
  Generator g(11);
  constexpr std::int64_t n = 40000;
  for (DType type : {DType::F32, DType::F64, DType::F16, DType::BF16}) {
    const Moments u = moments(rand({n}, g, type));
    EXPECT_NEAR(u.mean, 0.5, 0.01) << name_of(type);
    EXPECT_NEAR(u.variance, 1.0 / 12, 0.003);
    EXPECT_GE(u.least, 0);
    EXPECT_LT(u.most, 1);
    const Moments z = moments(randn({n}, g, type));
    EXPECT_NEAR(z.mean, 0, 0.025) << name_of(type);
    EXPECT_NEAR(z.variance, 1, 0.04);
    EXPECT_TRUE(std::isfinite(z.least) && std::isfinite(z.most));
    EXPECT_GT(z.most, 3);
  }
  const Moments d = moments(randint({n}, -3, 4, g));
  EXPECT_NEAR(d.mean, 0, 0.05);
  EXPECT_EQ(d.least, -3);
  EXPECT_EQ(d.most, 3);
  EXPECT_NEAR(moments(bernoulli({n}, 0.3, g)).mean, 0.3, 0.01);
  EXPECT_EQ(moments(bernoulli({100}, 0, g)).most, 0);
  EXPECT_EQ(moments(bernoulli({100}, 1, g)).least, 1);
  EXPECT_NEAR(moments(normal({n}, 5, 0.5, g)).mean, 5, 0.02);
  EXPECT_NEAR(moments(uniform({n}, -1, 3, g)).mean, 1, 0.03);
  const Tensor kept = dropout(ones({n}), 0.25, g);
  EXPECT_NEAR(moments(kept).mean, 1, 0.02);
  EXPECT_FLOAT_EQ(static_cast<float>(moments(kept).most), 1 / 0.75f);
  EXPECT_EQ(dropout(ones({4}), 0.25, g, false).sum().item(), 4);
}

double mean_of(const Tensor& a) {
  return a.to(DType::F64).mean().item();
}

TEST(Random, OtherDistributionsHaveTheirMoments) {
  Generator g(11);
  const Tensor e = exponential({20000}, 2, g).eval();
  EXPECT_NEAR(mean_of(e), 0.5, 0.02);
  EXPECT_GE(e.min().item(), 0);
  EXPECT_NEAR(mean_of(gumbel({20000}, g)), 0.5772, 0.03);
  const Tensor t = truncated_normal({20000}, 1, 2, 0, 4, g).eval();
  EXPECT_GE(t.min().item(), 0);
  EXPECT_LE(t.max().item(), 4);
  // mean + deviation (φ(-1/2) - φ(3/2)) / (Φ(3/2) - Φ(-1/2))
  EXPECT_NEAR(mean_of(t), 1 + 2 * (0.352065 - 0.129518) / (0.933193 - 0.308538), 0.03);
  EXPECT_NEAR(truncated_normal({20000}, 0, 1, -2, 2, g, DType::F64).std().item(), 0.8796, 0.02);
  const Tensor p = tensor({0.0, 0.25, 1.0}).unsqueeze(0).expand({8000, 3});
  const auto share = bernoulli(p, g).to(DType::F32).mean(0).to_vector();
  EXPECT_EQ(share[0], 0);
  EXPECT_NEAR(share[1], 0.25, 0.02);
  EXPECT_EQ(share[2], 1);
}

TEST(Random, PermutationsHoldEachElementOnceAndDiffer) {
  Generator g(3);
  for (std::int64_t n : {0, 1, 7, 600}) {
    auto first = permutation(n, g).to_vector<std::int64_t>();
    const auto second = permutation(n, g).to_vector<std::int64_t>();
    if (n > 1) {
      EXPECT_NE(first, second);
    }
    std::sort(first.begin(), first.end());
    for (std::int64_t i = 0; i < n; ++i)
      EXPECT_EQ(first[std::size_t(i)], i);
  }
}

TEST(Random, MultinomialChoosesByWeight) {
  Generator g(5);
  const Tensor w = tensor({1.0, 0.0, 3.0, 0.0}).unsqueeze(0).expand({4000, 4});
  const Tensor drawn = multinomial(w, 3, g, true).eval();
  EXPECT_EQ(drawn.shape(), (Shape{4000, 3}));
  const auto counts = bincount(drawn, 4).to_vector<double>();
  EXPECT_NEAR(counts[0] / 12000, 0.25, 0.02);
  EXPECT_EQ(counts[1] + counts[3], 0);
  EXPECT_NEAR(counts[2] / 12000, 0.75, 0.02);
  // Without replacement both positive ones are chosen, the heavier one first three times in four.
  const Tensor both = multinomial(w, 2, g).eval();
  EXPECT_EQ(both.sum(1).max().item(), 2);
  EXPECT_EQ(both.sum(1).min().item(), 2);
  EXPECT_NEAR((both.select(1, 0) == 2).to(DType::F64).mean().item(), 0.75, 0.03);
}

TEST(Random, DropoutOfChannelsKeepsOrDropsThemWhole) {
  Generator g(9);
  const Tensor y = feature_dropout(ones({50, 8, 3}), 0.25, g).eval();
  EXPECT_EQ(y.max(2).sum().item(), y.min(2).sum().item());
  EXPECT_NEAR(mean_of(y), 1, 0.1);
  const Tensor z = alpha_dropout(randn({30000}, g), 0.3, g).eval();
  EXPECT_NEAR(mean_of(z), 0, 0.03);
  EXPECT_NEAR(z.std().item(), 1, 0.03);
  const Tensor hard = gumbel_softmax(tensor({{0.0, 1.0}}).expand({4000, 2}), g, 0.5, true).eval();
  EXPECT_EQ(hard.sum(1).min().item(), 1);
  EXPECT_NEAR(hard.select(1, 1).mean().item(), std::exp(1) / (1 + std::exp(1)), 0.03);
}

} // namespace
} // namespace egret
