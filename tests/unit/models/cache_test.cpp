// Keys and values that are kept: a text that grows gives the model its new positions only.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/models.h"
#include "support/files.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

void expect_within(const Tensor& a, const Tensor& b, double tolerance = 1e-5) {
  ASSERT_EQ(a.sizes(), b.sizes());
  const auto x = a.to_vector(), y = b.to_vector();
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(x[i], y[i], tolerance) << i;
}

models::Gpt gpt(bool tied = false, std::int64_t context = 12) {
  Generator g(1);
  models::Gpt model(
      {.vocabulary = 7, .context = context, .layers = 2, .width = 8, .heads = 2, .tied = tied}, g);
  NoGrad no_grad; // larger than at the start, so that attention tells positions apart
  for (auto& [name, p] : nn::named_parameters(model))
    if (p.rank() == 2)
      p.assign(p * 20);
  return model;
}

TEST(KeyValueCache, PiecesGiveTheLogitsOfTheWhole) {
  Generator g(2);
  for (bool tied : {false, true}) {
    const models::Gpt model = gpt(tied);
    const Tensor tokens = randint({3, 12}, 0, 7, g).eval(), whole = model(tokens).eval();
    models::GptCache cache = model.cache(3);
    std::int64_t begin = 0;
    for (std::int64_t n : {4, 1, 1, 5, 1}) {
      expect_within(model.extend(tokens.narrow(1, begin, n), cache), whole.narrow(1, begin, n));
      begin += n;
      EXPECT_EQ(cache.length.item<std::int64_t>(), begin);
    }
    cache.length.assign(0); // what it held counts no more
    expect_within(model.extend(tokens.narrow(1, 0, 2), cache), whole.narrow(1, 0, 2));
  }
}

TEST(KeyValueCache, SharedHeadsShareTheirPlace) {
  Generator g(3);
  nn::MultiHeadAttention attention(12, 6, g, true, 2);
  const Tensor x = randn({2, 7, 12}, g).eval(), whole = attention(x).eval();
  nn::KeyValueCache cache = attention.cache(2, 9);
  EXPECT_EQ(cache.keys.sizes(), (std::vector<std::int64_t>{2, 2, 9, 2}));
  for (std::int64_t i = 0; i < 7; ++i)
    expect_within(attention.extend(x.narrow(1, i, 1), cache, scalar(i)), whole.narrow(1, i, 1));
}

// One plan for all positions; it writes a row of each cache, not all of it, and asks for no memory.
TEST(KeyValueCache, AStepIsOnePlanInPlace) {
  const models::Gpt model = gpt(false, 4096);
  auto step = compile([](const models::Gpt& m, const Tensor& token,
                         models::GptCache& cache) { return m.extend(token, cache)[0][-1]; },
                      {.name = "step"});
  models::GptCache cache = model.cache();
  std::vector<std::int64_t> text = {3, 1, 4, 1, 5, 2, 6};
  Tensor last;
  Counters before;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == 3)
      before = counters();
    last = step(model, tensor(std::vector{text[i]}, Shape{1, 1}), cache).eval();
  }
  const Counters steps = counters() - before;
  expect_within(last, model(tensor(text, Shape{1, 7}))[0][-1]);
  EXPECT_EQ(step.traces(), 1u);
  EXPECT_EQ(steps.graphs_traced, 0u);
  EXPECT_EQ(steps.compiles, 0u);
  const std::uint64_t of_cache = 2 * 2 * 4096 * 8 * 4; // layers, keys and values, capacity, width
  EXPECT_LT(steps.bytes_written, 2 * of_cache);        // four steps, with their scores
  auto fresh = compile([](const models::Gpt& m, const Tensor& token, models::GptCache& kept) {
    return m.extend(token, kept);
  });
  fresh(model, tensor(std::vector{text[0]}, Shape{1, 1}), cache);
  EXPECT_NE(fresh.last_report().find("5 states of which 5 updated in place"), std::string::npos)
      << fresh.last_report();
}

TEST(KeyValueCache, GradientsPassThroughIt) {
  models::Gpt model = gpt();
  Generator g(4);
  const Tensor tokens = randint({1, 6}, 0, 7, g).eval();
  model(tokens).sum().backward();
  const Tensor want = model.token_embedding.weight.grad().clone().eval();
  nn::zero_grad(nn::named_parameters(model));
  models::GptCache cache = model.cache();
  const Tensor first = model.extend(tokens.narrow(1, 0, 4), cache).sum();
  (first + model.extend(tokens.narrow(1, 4, 2), cache).sum()).backward();
  expect_within(model.token_embedding.weight.grad(), want, 1e-3);
}

TEST(KeyValueCache, WhatDoesNotFitIsRefused) {
  const models::Gpt model = gpt();
  auto error = [](ErrorKind kind, auto&& f, const char* part) {
    const std::string message = test::error_of(kind, f);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  error(
      ErrorKind::Value, [&] { model.cache(1, 13); },
      "a cache of 13 positions, the context holds 12");
  models::GptCache cache = model.cache(2, 5), none;
  error(
      ErrorKind::Shape,
      [&] {
        model.extend(ones({2, 6}, DType::I64), cache);
      },
      "6 positions, the cache holds 5");
  error(
      ErrorKind::Shape,
      [&] {
        model.extend(ones({1, 1}, DType::I64), cache);
      },
      "a cache of [2,2,5,4]");
  error(
      ErrorKind::Value,
      [&] {
        model.extend(ones({1, 1}, DType::I64), none);
      },
      "a cache of 0 layers for 2");
  Generator g(5);
  nn::MultiHeadAttention both_ways(4, 2, g);
  nn::KeyValueCache own = both_ways.cache(1, 4);
  error(
      ErrorKind::Value,
      [&] {
        both_ways.extend(ones({1, 1, 4}), own, scalar(0));
      },
      "not causal");
  error(
      ErrorKind::Value, [&] { both_ways.cache(1, 0); }, "at least 1");
}

} // namespace
} // namespace egret
