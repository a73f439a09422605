// Functions that read and update state, with sizes that differ from call to call.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/error.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/models.h"
#include "egret/optim.h"
#include "support/named_dims.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using testing::expect_near;
using testing::holds;
using testing::message_of;

struct NamedTraining {
  models::Gpt model;
  optim::AdamW optimizer;
  Generator dropout{4};

  NamedTraining() : NamedTraining(Generator(1)) {}
  explicit NamedTraining(Generator g)
      : model(
            {.vocabulary = 17, .context = 64, .layers = 1, .width = 8, .heads = 2, .dropout = 0.1},
            g),
        optimizer(nn::named_parameters(model), {.lr = 1e-2}) {}
};

Tensor train(models::Gpt& model, optim::AdamW& optimizer, const Tensor& tokens,
             const Tensor& targets, Generator& dropout) {
  const Tensor loss = cross_entropy(model(tokens, &dropout).reshape({-1, 17}), targets.flatten());
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();
  return loss;
}

TEST(NamedState, OneTrainingStepServesFiftyLengths) {
  NamedTraining named, plain;
  auto step = compile(
      &train, {.name = "step",
               .dims = {{.name = "batch", .least = 1, .most = 8, .at = {{2, 0}, {3, 0}}},
                        {.name = "tokens", .least = 1, .most = 64, .at = {{2, 1}, {3, 1}}}}});
  Generator g(3);
  auto draw = [&](std::int64_t batch, std::int64_t tokens) {
    return randint({batch, tokens}, 0, 17, g).eval();
  };
  // The same steps as without compile(): losses, parameters, moments, step count and generator.
  for (auto [batch, tokens] : {std::pair{3, 7}, {1, 1}, {8, 33}, {2, 64}, {5, 2}, {1, 20}}) {
    const Tensor x = draw(batch, tokens), y = draw(batch, tokens);
    EXPECT_NEAR(step(named.model, named.optimizer, x, y, named.dropout).item(),
                train(plain.model, plain.optimizer, x, y, plain.dropout).item(), 1e-5);
  }
  const auto a = nn::named_parameters(named.model), b = nn::named_parameters(plain.model);
  for (std::size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(a[i].name);
    expect_near(a[i].tensor, b[i].tensor, 1e-4);
    expect_near(named.optimizer.exp_avg.at(a[i].name), plain.optimizer.exp_avg.at(a[i].name), 1e-5);
  }
  EXPECT_EQ(named.optimizer.steps.item(), 6);
  EXPECT_EQ(named.dropout.counter.item<std::int64_t>(), plain.dropout.counter.item<std::int64_t>());

  const Counters before = counters();
  for (std::int64_t n = 1; n <= 50; ++n) {
    const Tensor x = draw(1 + n % 8, n), y = draw(1 + n % 8, n);
    step(named.model, named.optimizer, x, y, named.dropout);
  }
  EXPECT_EQ(step.traces(), 1u);
  EXPECT_EQ((counters() - before).graphs_traced, 0u);
  EXPECT_TRUE(holds(step.last_report(),
                    "step: call 56 replayed a trace (1 kept); for batch 1 to 8, tokens 1 to 64"))
      << step.last_report();
  step(named.model, named.optimizer, draw(9, 4), draw(9, 4), named.dropout);
  EXPECT_TRUE(holds(step.last_report(),
                    "batch is 9, and not between 1 and 8: traced for these sizes alone; for batch "
                    "9 only, tokens 1 to 64"))
      << step.last_report();
}

TEST(NamedState, RunningStatisticsOfBatchesOfAnySize) {
  auto normed = [](nn::BatchNorm& m, const Tensor& x, Generator& g) { return m(x, &g); };
  auto compiled = compile(
      normed, {.dims = {{.name = "batch", .least = 2, .most = 9, .at = {{1, 0}}, .buckets = {4}}}});
  nn::BatchNorm a(3), b(3);
  Generator g(3);
  for (std::int64_t n = 2; n <= 9; ++n) {
    const Tensor x = randn({n, 3, 4}, g).eval();
    expect_near(compiled(a, x, g), normed(b, x, g), 1e-5);
    expect_near(a.running_mean, b.running_mean, 1e-6);
    expect_near(a.running_var, b.running_var, 1e-5);
  }
  EXPECT_EQ(compiled.traces(), 2u);
}

TEST(NamedState, AStateOfThatSizeIsWrittenInPlace) {
  auto add = compile(
      [](Tensor& sums, const Tensor& x) {
        sums += x;
        return sum(sums);
      },
      {.dims = {{.name = "n", .least = 1, .most = 8, .at = {{0, 0}, {1, 0}}}}});
  for (std::int64_t n : {1, 4, 8, 3}) {
    Tensor sums = ones({n, 2}).eval();
    const Tensor same = sums, kept = sums.clone();
    for (int i = 1; i <= 3; ++i)
      EXPECT_EQ(add(sums, ones({n, 2})).item(), static_cast<double>(2 * n * (1 + i)));
    expect_near(same, full({n, 2}, 4.0), 0);
    expect_near(kept, ones({n, 2}), 0);
  }
  EXPECT_EQ(add.traces(), 1u);
  Tensor fresh = ones({9, 2});
  add(fresh, ones({9, 2}));
  EXPECT_TRUE(holds(add.last_report(), "1 states of which 1 updated in place"));
  Tensor one = ones({2, 2});
  EXPECT_EQ(message_of([&] {
              add(one, ones({3, 2}));
            }),
            "compile: dim n is 3 in argument 1 and 2 before");
  expect_near(one, ones({2, 2}), 0);
}

TEST(NamedState, AStateMayGrow) {
  auto put = compile(
      [](Tensor& rows, const Tensor& row) {
        rows = cat({rows, row});
        return sum(rows, 0);
      },
      {.name = "put", .dims = {{.name = "rows", .least = 0, .most = 30, .at = {{0, 0}}}}});
  Tensor rows = zeros({0, 2}).eval();
  for (std::int64_t i = 1; i <= 31; ++i) {
    const Tensor row = full({1, 2}, static_cast<double>(i)).eval();
    expect_near(put(rows, row), full({2}, static_cast<double>(i * (i + 1) / 2)), 0);
    EXPECT_EQ(rows.sizes(), (std::vector<std::int64_t>{i, 2}));
  }
  EXPECT_EQ(put.traces(), 1u);
  put(rows, ones({1, 2}));
  EXPECT_TRUE(holds(put.last_report(), "rows is 31, and not between 0 and 30"))
      << put.last_report();
}

struct Cache {
  Tensor rows, length; ///< [batch, capacity, d]; how many are filled
  EGRET_FIELDS(rows, length)
};

// What a cache of keys is: some new rows behind those of before, whose place is data.
TEST(NamedState, RowsGoBehindThoseOfBefore) {
  auto push = compile(
      [](Cache& cache, const Tensor& x) {
        const Expr n = x.shape()[1];
        const Tensor at = positions(n) + cache.length;
        cache.rows.assign(index_put(cache.rows, at, x, 1));
        cache.length += extent(n);
        return sum(cache.rows, 1);
      },
      {.dims = {{.name = "batch", .least = 1, .most = 4, .at = {{0, 0, "rows"}, {1, 0}}},
                {.name = "new", .least = 1, .most = 16, .at = {{1, 1}}}}});
  Generator g(5);
  for (std::int64_t batch : {2, 4}) {
    Cache cache{zeros({batch, 16, 3}), scalar(0)};
    Tensor all = zeros({batch, 0, 3});
    for (std::int64_t n : {5, 1, 1, 7, 2}) {
      const Tensor x = randn({batch, n, 3}, g).eval();
      all = cat({all, x}, 1).eval();
      expect_near(push(cache, x), sum(all, 1), 1e-5);
    }
    expect_near(cache.rows, all, 0);
  }
  EXPECT_EQ(push.traces(), 1u);
}

TEST(NamedState, WhatAFunctionChangesIsAsBeforeWhenItThrows) {
  auto fails = compile(
      [](Tensor& x) {
        x += 1;
        matmul(x, ones({5, 5}));
      },
      {.dims = {{.name = "n", .least = 1, .most = 9, .at = {{0, 0}}}}});
  Tensor x = ones({2, 2});
  const Tensor same = x;
  EXPECT_TRUE(holds(message_of([&] { fails(x); }), "inner dimensions differ"));
  expect_near(x, ones({2, 2}), 0);
  x += 1;
  expect_near(same, full({2, 2}, 2.0), 0); // still one handle
}

TEST(NamedState, TwoWaysToOneStateAreRefused) {
  Tensor x = ones({2});
  const Tensor same = x;
  auto captured =
      compile([&](Tensor& state) { state += same; },
              {.name = "f", .dims = {{.name = "n", .least = 1, .most = 9, .at = {{0, 0}}}}});
  EXPECT_EQ(message_of([&] { captured(x); }),
            "f: `argument0` is a state with sizes that differ from call to call, and is reached by "
            "another way too (a capture, or a part of another argument); use the argument only");
  auto twice =
      compile([](Tensor& state, const Tensor& other) { state += other.sum(); },
              {.name = "f", .dims = {{.name = "n", .least = 1, .most = 9, .at = {{0, 0}}}}});
  EXPECT_EQ(message_of([&] { twice(x, x); }),
            "f: `argument0` and `argument1` are one tensor, with a dim that differs from call to "
            "call in one of them only; name it for both");
  expect_near(x, ones({2}), 0);
  // An input that is captured as well is the captured tensor in every call.
  auto sums = compile([&](const Tensor& input) { return input.sum() + same.sum(); },
                      {.dims = {{.name = "n", .least = 1, .most = 9, .at = {{0, 0}}}}});
  EXPECT_EQ(sums(x).item(), 4);
  EXPECT_EQ(sums(ones({5})).item(), 7);
}

} // namespace
} // namespace egret
