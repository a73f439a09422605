// Two threads, each with a training of its own: nothing is shared but the runtime.
#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/models.h"
#include "egret/optim.h"
#include "egret/prefetch.h"

#include <gtest/gtest.h>
#include <thread>

namespace egret::training {
namespace {

struct ThreadTraining {
  Generator generator;
  models::Gpt model;
  optim::AdamW optimizer;
  data::PrefetchLoader batches;
  EGRET_FIELDS(generator, model, optimizer, batches)

  explicit ThreadTraining(std::uint64_t seed)
      : generator(seed),
        model({.vocabulary = 7, .context = 6, .layers = 1, .width = 8, .heads = 2, .dropout = 0.1},
              generator),
        optimizer(nn::named_parameters(model), {.lr = 0.01}), batches(make_batches(seed)) {}

  static data::PrefetchLoader make_batches(std::uint64_t seed) {
    Generator g(seed + 100);
    return data::PrefetchLoader(
        data::Loader({randint({19, 7}, 0, 7, g)}, {.batch = 4, .seed = seed}), {.workers = 2});
  }
};

/// Losses of some steps, lazily and compiled in turn, and the parameters in the end.
std::vector<float> trained(std::uint64_t seed) {
  ThreadTraining t(seed);
  auto train_step = [](ThreadTraining& s, const Tensor& tokens) {
    const Tensor logits = s.model(tokens.narrow(1, 0, 6), &s.generator);
    Tensor loss = cross_entropy(logits, tokens.narrow(1, 1, 6));
    s.optimizer.zero_grad();
    loss.backward();
    s.optimizer.step();
    return loss;
  };
  auto step = compile(train_step);
  std::vector<float> values;
  for (int i = 0; i < 12; ++i) {
    const Tensor tokens = t.batches.next()[0];
    Tensor loss = i % 4 == 3 ? train_step(t, tokens) : step(t, tokens);
    values.push_back(loss.item<float>());
  }
  for (const auto& [name, p] : nn::named_parameters(t.model))
    for (float value : p.to_vector())
      values.push_back(value);
  return values;
}

TEST(Threads, TwoTrainingsAtOnceAreThoseOfEachAlone) {
  const std::vector<float> first = trained(1), second = trained(2);
  ASSERT_NE(first, second);
  for (int round = 0; round < 3; ++round) {
    std::vector<float> a, b;
    std::thread one([&] { a = trained(1); }), two([&] { b = trained(2); });
    one.join();
    two.join();
    EXPECT_EQ(a, first);
    EXPECT_EQ(b, second);
  }
}

} // namespace
} // namespace egret::training
