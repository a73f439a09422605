// The numbers themselves, their distributions, and the state's advance.
#include "egret/random.h"

#include "egret/counters.h"
#include "egret/functional.h"
#include "runtime/runtime.h"

#include <gtest/gtest.h>

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
  const auto cpu = draw(runtime::Engine::Cpu);
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

} // namespace
} // namespace egret
