// Texts under grammars, guesses by lookup, log-probabilities, shared prompts and embeddings.
#include "egret/grammar.h"
#include "egret/language_model.h"
#include "egret/tokenizer.h"
#include "support/files.h"
#include "support/json_language.h"

#include <cmath>
#include <gtest/gtest.h>

namespace egret::models {
namespace {

using nlohmann::json;

class Constrained : public testing::Test {
protected:
  static void SetUpTestSuite() {
    folder_ = new test::TempFolder;
    test::write_json_language_folder(folder_->path());
    tokenizer_ = new Tokenizer(Tokenizer::load(folder_->path()));
    texts_ = new TokenTexts(*tokenizer_);
    model_ = new LanguageModel(
        LanguageModel::load(folder_->path(), {.context = 512, .sequences = 4, .chunk = 32}));
  }
  static void TearDownTestSuite() {
    delete model_;
    delete texts_;
    delete tokenizer_;
    delete folder_;
  }
  static GenerateOptions options(const std::string& schema, std::uint64_t seed,
                                 std::int64_t most = 300) {
    return {.max_new = most,
            .temperature = seed == 0 ? 0.0 : 1.5,
            .seed = seed,
            .stop = std::vector<int>{2},
            .grammar = std::make_shared<const TokenGrammar>(Grammar::of_schema(schema), *texts_)};
  }

  static test::TempFolder* folder_;
  static Tokenizer* tokenizer_;
  static TokenTexts* texts_;
  static LanguageModel* model_;
};
test::TempFolder* Constrained::folder_ = nullptr;
Tokenizer* Constrained::tokenizer_ = nullptr;
TokenTexts* Constrained::texts_ = nullptr;
LanguageModel* Constrained::model_ = nullptr;

const char* const kSchemas[] = {
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":8},
        "age":{"type":"integer","minimum":0,"maximum":150},
        "tags":{"type":"array","items":{"enum":["a","b",null,1.5]},"maxItems":4}},
        "required":["name","tags"],"additionalProperties":false})",
    R"({"$defs":{"n":{"type":"object","properties":{"v":{"type":"boolean"},
        "next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v"]}},
        "$ref":"#/$defs/n"})",
    R"({"oneOf":[{"type":"integer","minimum":-5,"maximum":5},
        {"type":"string","pattern":"^[a-f]{2,4}(-[0-9]+)?$"},{"type":"null"}]})"};

TEST_F(Constrained, TextsOfRandomWeightsAreOfTheSchema) {
  int ended = 0;
  for (const char* schema : kSchemas)
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const Generated text = model_->generate(std::vector<int>{9, 8, 7}, options(schema, seed));
      if (text.reason != StopReason::Stop) {
        EXPECT_EQ(text.reason, StopReason::Length);
        continue;
      }
      ++ended;
      const std::string written = tokenizer_->decode(text.tokens);
      const json value = json::parse(written, nullptr, false);
      const json of = json::parse(schema);
      ASSERT_FALSE(value.is_discarded()) << written;
      EXPECT_TRUE(test::validates(value, of, of)) << written;
    }
  EXPECT_GE(ended, 12);
}

TEST_F(Constrained, ATextThatIsCutOffIsTheBeginningOfOne) {
  const Generated text =
      model_->generate(std::vector<int>{9, 8, 7}, options(kSchemas[0], 3, /*most=*/2));
  EXPECT_EQ(text.reason, StopReason::Length);
  EXPECT_EQ(text.tokens.size(), 2U);
  EXPECT_EQ(tokenizer_->decode(text.tokens)[0], '{');
}

TEST_F(Constrained, ATextEndsWhereNothingMayFollowWithoutAStopToken) {
  GenerateOptions o = options(R"({"const":"ab"})", 1);
  o.stop = std::vector<int>{};
  const Generated text = model_->generate(std::vector<int>{9, 8}, o);
  EXPECT_EQ(text.reason, StopReason::Stop);
  EXPECT_EQ(tokenizer_->decode(text.tokens), "\"ab\"");
}

TEST_F(Constrained, TextsTogetherAreThoseAlone) {
  std::map<GenerationBatch::Id, std::vector<int>> expected, all;
  GenerationBatch batch(*model_);
  std::vector<std::pair<std::vector<int>, GenerateOptions>> jobs;
  for (std::uint64_t i = 0; i < 6; ++i)
    jobs.emplace_back(std::vector<int>{9, 8, static_cast<int>(10 + i)},
                      options(kSchemas[i % 3], i, 60));
  std::vector<std::vector<int>> alone;
  for (const auto& [prompt, o] : jobs)
    alone.push_back(model_->generate(prompt, o).tokens);
  for (std::size_t i = 0; i < jobs.size(); ++i)
    expected[batch.add(jobs[i].first, jobs[i].second)] = alone[i];
  while (batch.running() + batch.waiting() > 0)
    for (const auto& event : batch.step()) {
      ASSERT_EQ(event.error, "");
      if (event.token)
        all[event.id].push_back(*event.token);
    }
  EXPECT_EQ(all, expected);
}

TEST_F(Constrained, AVocabularyThatCannotWriteTheGrammarIsAnError) {
  const auto message_of = [&](const char* vocabulary, const char* grammar) {
    const Tokenizer tokens =
        Tokenizer::parse(R"({"model":{"type":"BPE","vocab":)" + std::string(vocabulary) +
                         R"(,"merges":[]},"decoder":{"type":"Fuse"}})");
    try {
      GenerateOptions o{.max_new = 5};
      o.grammar = std::make_shared<const TokenGrammar>(Grammar::parse(grammar), TokenTexts(tokens));
      (void)model_->generate(std::vector<int>{9, 8}, o);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Value);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message_of(R"({"a":0,"b":1})", "root ::= \"aé\""),
            "grammar: the tokens of the vocabulary cannot write any text of it");
  // Only a longer token has the byte.
  EXPECT_NE(message_of(R"({"a":0,"ab":1})", "root ::= \"b\"").find("no token of the vocabulary"),
            std::string::npos);
}

TEST_F(Constrained, LookupWritesTheSameTokens) {
  // A prompt that repeats itself, and a text that does: guesses hold and fail.
  std::vector<int> prompt;
  for (int i = 0; i < 40; ++i)
    prompt.push_back(20 + i % 7);
  std::int64_t accepted = 0;
  for (const double temperature : {0.0, 1.2}) {
    GenerateOptions o{.max_new = 120,
                      .temperature = temperature,
                      .top_k = 3,
                      .repetition_penalty = temperature == 0 ? 1.0 : 1.05,
                      .seed = 4,
                      .stop = std::vector<int>{}};
    const Generated plain = model_->generate(prompt, o);
    for (const std::int64_t lookup : {1, 5, 63}) {
      o.lookup = lookup;
      std::vector<int> shown;
      const Generated guessed = model_->generate(prompt, o, [&](int token) {
        shown.push_back(token);
        return true;
      });
      EXPECT_EQ(guessed.tokens, plain.tokens) << lookup;
      EXPECT_EQ(guessed.reason, plain.reason);
      EXPECT_EQ(shown, plain.tokens);
      EXPECT_GT(guessed.guessed, 0);
      EXPECT_LE(guessed.accepted, guessed.guessed);
      accepted += guessed.accepted;
    }
    EXPECT_EQ(plain.guessed, 0);
  }
  EXPECT_GT(accepted, 0);
  // The cache holds what was written, and no wrong guess.
  std::vector<int> all = prompt;
  const GenerateOptions few{.max_new = 30, .stop = std::vector<int>{}, .lookup = 8};
  const Generated first = model_->generate(prompt, few);
  all.insert(all.end(), first.tokens.begin(), first.tokens.end());
  const Generated next = model_->generate(all, {.max_new = 10, .stop = std::vector<int>{}});
  LanguageModel other = LanguageModel::load(folder_->path(), {.context = 512});
  EXPECT_EQ(next.tokens, other.generate(all, {.max_new = 10, .stop = std::vector<int>{}}).tokens);
}

TEST_F(Constrained, LookupStopsAtTheEndOfTheContext) {
  LanguageModel small = LanguageModel::load(folder_->path(), {.context = 24});
  std::vector<int> prompt;
  for (int i = 0; i < 16; ++i)
    prompt.push_back(20 + i % 3);
  GenerateOptions o{.max_new = 100, .stop = std::vector<int>{}};
  const Generated plain = small.generate(prompt, o);
  o.lookup = 20;
  const Generated guessed = small.generate(prompt, o);
  EXPECT_EQ(plain.reason, StopReason::Context);
  EXPECT_EQ(guessed.reason, StopReason::Context);
  EXPECT_EQ(guessed.tokens, plain.tokens);
}

TEST_F(Constrained, LogprobsAreThoseOfTheLogits) {
  const std::vector<int> prompt = {9, 8, 7, 30};
  GenerationBatch batch(*model_);
  (void)batch.add(prompt, {.max_new = 5,
                           .temperature = 2,
                           .presence_penalty = 1,
                           .seed = 3,
                           .stop = std::vector<int>{},
                           .top_logprobs = 3});
  std::vector<int> all = prompt;
  std::vector<Logprobs> given;
  while (batch.running() + batch.waiting() > 0)
    for (const auto& event : batch.step()) {
      all.push_back(event.token.value());
      given.push_back(event.logprobs.value());
    }
  const std::vector<float> expected = model_->log_probabilities(all);
  ASSERT_EQ(given.size(), 5U);
  for (std::size_t i = 0; i < given.size(); ++i) {
    EXPECT_NEAR(given[i].value, expected[prompt.size() - 1 + i], 1e-4);
    ASSERT_EQ(given[i].top.size(), 3U);
    EXPECT_GE(given[i].top[0].value, given[i].top[1].value);
    EXPECT_GE(given[i].top[1].value, given[i].top[2].value);
    EXPECT_GE(given[i].top[0].value, given[i].value);
  }
}

TEST_F(Constrained, PromptsThatBeginAlikeAreReadOnce) {
  std::vector<int> prompt;
  for (int i = 0; i < 100; ++i)
    prompt.push_back(10 + (i * i) % 97);
  LanguageModel fresh =
      LanguageModel::load(folder_->path(), {.context = 512, .sequences = 4, .chunk = 32});
  GenerationBatch batch(fresh);
  std::map<GenerationBatch::Id, std::vector<int>> expected, all;
  std::map<GenerationBatch::Id, std::size_t> reused;
  std::vector<GenerateOptions> each;
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    each.push_back({.max_new = 12, .temperature = 1, .seed = seed, .stop = std::vector<int>{}});
  for (const GenerateOptions& o : each)
    expected[batch.add(prompt, o)] = model_->generate(prompt, o).tokens;
  while (batch.running() + batch.waiting() > 0)
    for (const auto& event : batch.step()) {
      ASSERT_EQ(event.error, "");
      all[event.id].push_back(event.token.value());
      reused[event.id] = event.reused;
    }
  EXPECT_EQ(all, expected);
  std::size_t copied = 0;
  for (const auto& [id, count] : reused)
    copied += count == prompt.size() - 1;
  EXPECT_EQ(copied, 3U);
}

TEST_F(Constrained, EmbeddingsHaveLengthOne) {
  const std::vector<int> text = {9, 8, 7, 30, 12};
  for (const Pooling pooling : {Pooling::Mean, Pooling::Last}) {
    const std::vector<float> a = model_->embedding(text, pooling);
    double squares = 0;
    for (const float x : a)
      squares += static_cast<double>(x) * x;
    EXPECT_NEAR(squares, 1, 1e-5);
    EXPECT_EQ(std::ssize(a), model_->config().width);
  }
  EXPECT_NE(model_->embedding(text, Pooling::Mean), model_->embedding(text, Pooling::Last));
  const std::vector<int> one = {9};
  EXPECT_EQ(model_->embedding(one, Pooling::Mean), model_->embedding(one, Pooling::Last));
  EXPECT_EQ(model_->pooling(), Pooling::Mean);
  EXPECT_THROW((void)model_->embedding(std::vector<int>{}, Pooling::Mean), Error);
}

} // namespace
} // namespace egret::models
