// Perplexity by windows, against the logits of each window.
#include "egret/language_model.h"
#include "support/files.h"
#include "support/language_models.h"

#include <cmath>
#include <gtest/gtest.h>

namespace egret::models {
namespace {

class PerplexityTest : public ::testing::Test {
protected:
  void SetUp() override {
    const auto& golden = test::golden_language("llama_3");
    test::write_language_folder(folder_.path(), golden["config"], test::language_tensors(golden));
    for (int i = 0; i < 41; ++i)
      tokens_.push_back((17 * i + i * i) % 64);
    model_.emplace(LanguageModel::load(folder_.path(), {.context = 64}));
  }
  /// -log p of token `at` behind those from `begin` on.
  double loss(std::size_t begin, std::size_t at) {
    const std::vector<int> before(tokens_.begin() + static_cast<std::ptrdiff_t>(begin),
                                  tokens_.begin() + static_cast<std::ptrdiff_t>(at));
    const std::vector<float> logits = model_->logits(before).to_vector<float>();
    const float* last = logits.data() + logits.size() - 64;
    double total = 0;
    for (int i = 0; i < 64; ++i)
      total += std::exp(static_cast<double>(last[i]));
    return std::log(total) - last[tokens_[at]];
  }

  test::TempFolder folder_;
  std::vector<int> tokens_;
  std::optional<LanguageModel> model_;
};

TEST_F(PerplexityTest, LogProbabilitiesAreThoseOfTheLogits) {
  const std::vector<float> log_p = model_->log_probabilities(tokens_);
  ASSERT_EQ(log_p.size(), 40U);
  for (const std::size_t at : {1U, 7U, 40U})
    EXPECT_NEAR(-log_p[at - 1], loss(0, at), 1e-4);
}

TEST_F(PerplexityTest, EachTokenIsScoredOnceInTheFirstWindowThatHasIt) {
  // Windows of 16 that begin at 0, 6, 12, 18, 24 and 30: the last one ends with the text.
  double expected = 0;
  for (std::size_t at = 1; at < tokens_.size(); ++at)
    expected += loss(at < 16 ? 0 : 6 * ((at - 16) / 6 + 1), at);
  std::vector<std::int64_t> read;
  const Perplexity overlapping =
      perplexity(*model_, tokens_, {.length = 16, .stride = 6}, [&](std::int64_t n) {
        read.push_back(n);
        return true;
      });
  EXPECT_EQ(overlapping.tokens, 40);
  EXPECT_NEAR(overlapping.loss, expected / 40, 1e-4);
  EXPECT_NEAR(overlapping.value, std::exp(expected / 40), 1e-2);
  EXPECT_EQ(read, (std::vector<std::int64_t>{16, 22, 28, 34, 40, 41}));
  // Without overlap the first token of a window has nothing before it.
  const Perplexity apart = perplexity(*model_, tokens_, {.length = 10, .stride = 10});
  EXPECT_EQ(apart.tokens, 4 * 9);
  const Perplexity part = perplexity(*model_, tokens_, {.length = 16, .stride = 6},
                                     [](std::int64_t n) { return n < 22; });
  EXPECT_EQ(part.tokens, 21);
}

TEST_F(PerplexityTest, RefusesWhatCannotBeRead) {
  const auto refused = [&](std::vector<int> tokens, const PerplexityOptions& options) {
    return test::error_of(ErrorKind::Value, [&] { perplexity(*model_, tokens, options); });
  };
  EXPECT_NE(refused({1}, {}).find("1 tokens"), std::string::npos);
  EXPECT_NE(refused({1, 2}, {.length = 65}).find("windows of 65"), std::string::npos);
  EXPECT_NE(refused({1, 2}, {.length = 8, .stride = 9}).find("a stride of 9"), std::string::npos);
  EXPECT_NE(refused({1, 64}, {}).find("token 64"), std::string::npos);
}

} // namespace
} // namespace egret::models
