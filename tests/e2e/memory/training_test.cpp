// A GPT's training step under memory limits: the same losses to the last bit, within the limit.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/models.h"
#include "egret/optim.h"
#include "support/files.h"

#include <gtest/gtest.h>

#include <optional>

namespace egret {
namespace {

struct Training {
  models::Gpt model;
  optim::AdamW optimizer;
  EGRET_FIELDS(model, optimizer)
};

Tensor step_of(Training& t, const Tensor& x, const Tensor& y) {
  Tensor loss = cross_entropy(t.model(x), y);
  t.optimizer.zero_grad();
  loss.backward();
  optim::clip_grad_norm(t.optimizer.parameters(), 1.0);
  t.optimizer.step();
  return loss;
}

struct Trained {
  std::vector<float> losses;
  std::vector<std::vector<float>> parameters;
  std::int64_t peak = 0;
  std::string report;
};

Trained train(std::optional<std::int64_t> limit, int steps) {
  constexpr std::int64_t kVocabulary = 256, kTokens = 128;
  Generator g(1);
  models::Gpt model({.vocabulary = kVocabulary,
                     .context = kTokens,
                     .layers = 4,
                     .width = 128,
                     .heads = 4,
                     .tied = true},
                    g);
  Training training{model, optim::AdamW(nn::named_parameters(model), {.lr = 1e-3})};
  Tensor x = randint({4, kTokens}, 0, kVocabulary, g), y = randint({4, kTokens}, 0, kVocabulary, g);
  std::vector<Tensor> start = {x, y};
  for (auto& named : named_tensors(training))
    start.push_back(named.tensor);
  eval(start);
  start.clear();
  auto step = compile(&step_of, {.name = "step", .memory_limit = limit});
  Trained trained;
  for (int i = 0; i < steps; ++i) {
    const auto before = counters().bytes_in_use;
    reset_peak_bytes();
    trained.losses.push_back(static_cast<float>(step(training, x, y).item()));
    trained.peak = static_cast<std::int64_t>(counters().peak_bytes - before);
  }
  trained.report = step.last_report() + step.explain();
  for (auto& named : nn::named_parameters(training.model))
    trained.parameters.push_back(named.tensor.to_vector<float>());
  return trained;
}

TEST(TrainingUnderAMemoryLimit, GivesTheSameBits) {
  constexpr int kSteps = 4;
  constexpr std::int64_t kLoss = 256; // memory of the loss, with what an allocation is rounded to
  const Trained plain = train(std::nullopt, kSteps);
  for (const double share : {0.75, 0.5, 0.35}) {
    SCOPED_TRACE(share);
    const auto limit = static_cast<std::int64_t>(share * static_cast<double>(plain.peak));
    const Trained limited = train(limit, kSteps);
    EXPECT_EQ(limited.losses, plain.losses);
    EXPECT_TRUE(limited.parameters == plain.parameters);
    EXPECT_LE(limited.peak, limit + kLoss);
    EXPECT_NE(limited.report.find("computed again"), std::string::npos) << limited.report;
  }
}

TEST(TrainingUnderAMemoryLimit, IsRefusedWithTheLeastFigureWhichThenSuffices) {
  const std::string message = test::error_of(ErrorKind::Memory, [] { train(1 << 20, 1); });
  const std::string least = " the least that was found is ";
  ASSERT_NE(message.find(least), std::string::npos) << message;
  const std::int64_t figure = std::stoll(message.substr(message.find(least) + least.size()));
  EXPECT_GT(figure, 1 << 20);
  const Trained at_least = train(figure, 2);
  EXPECT_EQ(at_least.losses, train(std::nullopt, 2).losses);
}

} // namespace
} // namespace egret
