// Derivatives of operations that were recorded before are known: nothing in them is taken for fixed
// that may differ.
#include "tensor/derivatives.h"

#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/nn.h"
#include "egret/optim.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

namespace egret {
namespace {

Tensor derived_leaf(std::vector<double> values) {
  const auto size = static_cast<std::int64_t>(values.size());
  return tensor(values, Shape{Expr(size)}).set_requires_grad();
}

void expect_derivatives(const Tensor& actual, const std::vector<double>& expected,
                        double by = 1e-6) {
  const auto got = actual.to_vector<double>();
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], by) << i;
}

// How many recipes are derived meanwhile.
template <class F>
std::uint64_t derived_by(F&& body) {
  const std::uint64_t before = detail::recipes_derived();
  body();
  return detail::recipes_derived() - before;
}

TEST(KnownDerivatives, ALoopIsDerivedInItsFirstPass) {
  const auto pass = [](double at) {
    const Tensor x = derived_leaf({at, 2 * at, -at});
    const Tensor y = (x * x * 0.71 + sin(x)).sum();
    y.backward();
    expect_derivatives(x.grad(), {1.42 * at + std::cos(at), 2.84 * at + std::cos(2 * at),
                                  -1.42 * at + std::cos(at)});
  };
  EXPECT_EQ(derived_by([&] { pass(0.5); }), 1u);
  EXPECT_EQ(derived_by([&] {
              for (int i = 0; i < 20; ++i)
                pass(0.1 * i);
            }),
            0u);
}

TEST(KnownDerivatives, NumbersAndTensorsThatChangeAreRead) {
  for (int i = 1; i < 6; ++i) {
    const Tensor x = derived_leaf({1, 2, 3});
    const Tensor w = tensor(std::vector<double>{1.0 * i, -1.0, 0.5 * i}, Shape{Expr(3)});
    const double scale = 0.3 + i;
    (x * x * w * scale).sum().backward();
    expect_derivatives(x.grad(), {2.0 * i * scale, -4.0 * scale, 3.0 * i * scale});
  }
}

TEST(KnownDerivatives, WhatDiffersInItsAttributesDiffersInItsDerivative) {
  for (int round = 0; round < 2; ++round)
    for (std::int64_t begin = 0; begin < 3; ++begin) {
      const Tensor x = derived_leaf({1, 2, 3, 4});
      (x[{Slice(begin, begin + 2)}] * tensor({5.0, 7.0}).to(DType::F64)).sum().backward();
      std::vector<double> expected(4);
      expected[static_cast<std::size_t>(begin)] = 5;
      expected[static_cast<std::size_t>(begin) + 1] = 7;
      expect_derivatives(x.grad(), expected);
    }
  for (int round = 0; round < 2; ++round)
    for (std::int64_t axis = 0; axis < 2; ++axis) {
      const Tensor x = derived_leaf({1, 2, 3, 4});
      const Tensor sums = x.reshape({2, 2}).sum(axis);
      (sums * sums).sum().backward();
      expect_derivatives(x.grad(), axis == 0 ? std::vector<double>{8, 12, 8, 12}
                                             : std::vector<double>{6, 6, 14, 14});
    }
}

TEST(KnownDerivatives, WhatIsDifferentiatedByWhatIsPartOfIt) {
  for (int round = 0; round < 2; ++round) {
    const Tensor a = derived_leaf({2, 3}), b = derived_leaf({5, 7});
    const Tensor product = a * b, total = (product * product).sum();
    expect_derivatives(grad(total, a), {100, 294});
    expect_derivatives(grad(total, b), {40, 126});
    expect_derivatives(grad(total, product), {20, 42});
    const std::vector<Tensor> both = grad(total, {b, a});
    expect_derivatives(both[0], {40, 126});
    expect_derivatives(both[1], {100, 294});
  }
}

TEST(KnownDerivatives, SeedsAreOperands) {
  for (int i = 1; i < 4; ++i) {
    const Tensor x = derived_leaf({1, 2});
    const Tensor y = x * x;
    const Tensor seed = tensor(std::vector<double>{1.0 * i, 10.0 * i}, Shape{Expr(2)});
    y.backward(seed, true);
    expect_derivatives(x.grad(), {2.0 * i, 40.0 * i});
    // y itself as the seed, which is in the recipe already
    const std::vector<Tensor> by_itself =
        grad(std::span(&y, 1), std::span(&x, 1), std::span(&y, 1));
    expect_derivatives(by_itself[0], {2, 16});
  }
}

TEST(KnownDerivatives, AreDifferentiatedAgain) {
  const auto pass = [](double at) {
    const Tensor x = derived_leaf({at, -at});
    const Tensor first = grad((x * x * x).sum(), x);
    const Tensor second = grad(first.sum(), x);
    const Tensor third = grad(second.sum(), x);
    expect_derivatives(second, {6 * at, -6 * at});
    expect_derivatives(third, {6, 6});
  };
  pass(1.5);
  EXPECT_EQ(derived_by([&] { pass(2.5); }), 0u);
}

TEST(KnownDerivatives, ASoftmaxTakesItsMaximumOffWithAndWithoutAGradient) {
  for (int round = 0; round < 2; ++round)
    for (const bool stopped : {true, false}) {
      const Tensor x = derived_leaf({1, 3, 2});
      const Tensor top = x.max(-1, true);
      const Tensor e = exp(x - (stopped ? top.detach() : top));
      const Tensor p = e / e.sum(-1, true);
      (p * tensor(std::vector<double>{1, 0, 0}, Shape{Expr(3)})).sum().backward();
      const double z = std::exp(1.0) + std::exp(3.0) + std::exp(2.0);
      const double p0 = std::exp(1.0) / z, p1 = std::exp(3.0) / z, p2 = std::exp(2.0) / z;
      expect_derivatives(x.grad(), {p0 * (1 - p0), -p0 * p1, -p0 * p2});
    }
}

TEST(KnownDerivatives, AFailureIsNotRemembered) {
  for (int round = 0; round < 2; ++round) {
    const Tensor x = derived_leaf({1, 2});
    const Tensor y = x * 3.0;
    EXPECT_THROW(y.backward(), Error);
    y.sum().backward();
    expect_derivatives(x.grad(), {3, 3});
  }
}

TEST(KnownDerivatives, ManyThreadsShareThem) {
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([t, &wrong] {
      for (int i = 0; i < 25; ++i) {
        const double at = 0.1 * i + static_cast<double>(t);
        std::vector<double> values(static_cast<std::size_t>(2 + i % 3), at);
        const Tensor x = derived_leaf(values);
        (exp(x * 0.25) * x).sum().backward();
        const double expected = std::exp(at * 0.25) * (1 + 0.25 * at);
        for (const double got : x.grad().to_vector<double>())
          wrong[t] += std::abs(got - expected) > 1e-6 * expected ? 1 : 0;
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  for (const int count : wrong)
    EXPECT_EQ(count, 0);
}

struct Training {
  nn::Mlp model;
  optim::AdamW optimizer;
  EGRET_FIELDS(model, optimizer)
};

Training training() {
  Generator g(1);
  nn::Mlp model({6, 8, 3}, g);
  return {model, optim::AdamW(nn::named_parameters(model), {.lr = 1e-2})};
}

Tensor plain_step(Training& t, const Tensor& x, const Tensor& y) {
  Tensor loss = cross_entropy(t.model(x), y);
  loss.backward();
  t.optimizer.step();
  t.optimizer.zero_grad();
  return loss;
}

TEST(KnownDerivatives, APlainLoopIsTheCompiledOneAndCompilesNothingAfterItsThirdStep) {
  Generator g(2);
  const Tensor x = randn({16, 6}, g).eval(), y = randint({16}, 0, 3, g).eval();
  Training plain = training(), other = training();
  auto step = compile(&plain_step);
  Counters before;
  std::uint64_t derived = 0;
  double loss = 0;
  for (int i = 0; i < 12; ++i) {
    if (i == 3) {
      before = counters();
      derived = detail::recipes_derived();
    }
    loss = plain_step(plain, x, y).item();
  }
  const Counters spent = counters() - before;
  EXPECT_EQ(spent.compiles, 0u);
  EXPECT_EQ(spent.plan_hits, 9u);
  EXPECT_EQ(detail::recipes_derived() - derived, 0u);
  double expected = 0;
  for (int i = 0; i < 12; ++i)
    expected = step(other, x, y).item();
  EXPECT_NEAR(loss, expected, 1e-4);
}

} // namespace
} // namespace egret
