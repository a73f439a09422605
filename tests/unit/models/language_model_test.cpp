// Language models from folders and GGUF files give the logits and the greedy text that transformers
// gives (tests/golden/make_language.py).
#include "egret/language_model.h"
#include "support/files.h"
#include "support/language_models.h"

#include <gtest/gtest.h>
#include <map>

namespace egret::models {
namespace {

using test::golden_language;

void expect_like_transformers(LanguageModel& model, const std::string& name,
                              double tolerance = 1e-4) {
  const nlohmann::json& golden = golden_language(name);
  const auto prompt = golden["prompt"].get<std::vector<int>>();
  test::expect_golden(model.logits(prompt).to_vector<double>(), golden["logits"], tolerance, name);
  if (testing::Test::HasFailure())
    return;
  const Generated text = model.generate(prompt, {.max_new = 64, .stop = std::vector<int>{}});
  EXPECT_EQ(text.tokens, golden["greedy"].get<std::vector<int>>()) << name;
  EXPECT_EQ(text.reason, StopReason::Length);
}

class Architectures : public testing::TestWithParam<const char*> {};

TEST_P(Architectures, FolderGivesTheLogitsAndTheTextOfTransformers) {
  test::TempFolder folder;
  const nlohmann::json& golden = golden_language(GetParam());
  test::write_language_folder(folder.path(), golden["config"], test::language_tensors(golden));
  LanguageModel model = LanguageModel::load(folder.path());
  EXPECT_EQ(model.context(), 128);
  expect_like_transformers(model, GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, Architectures,
                         testing::Values("llama", "llama_3", "llama_linear", "llama_yarn",
                                         "llama_yarn_mscale", "llama_yarn_factor", "mistral",
                                         "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma",
                                         "gemma2", "gemma3", "phi3", "phi3_long", "olmo2", "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

class GgufArchitectures : public testing::TestWithParam<const char*> {};

TEST_P(GgufArchitectures, FileGivesTheLogitsOfTransformers) {
  test::TempFolder folder;
  const nlohmann::json& golden = golden_language(GetParam());
  test::write_gguf(folder / "model.gguf", golden);
  LanguageModel model = LanguageModel::load(folder / "model.gguf");
  const auto prompt = golden["prompt"].get<std::vector<int>>();
  test::expect_golden(model.logits(prompt).to_vector<double>(), golden["logits"], 1e-4, GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, GgufArchitectures,
                         testing::Values("llama", "llama_linear", "llama_yarn", "mixtral", "qwen2",
                                         "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3", "phi3",
                                         "olmo2", "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(LanguageModel, ShardsGiveTheSameAsOneFile) {
  test::TempFolder folder;
  const nlohmann::json& golden = golden_language("gpt2");
  test::write_sharded_folder(folder.path(), golden["config"], test::language_tensors(golden), 3);
  LanguageModel model = LanguageModel::load(folder.path(), {.chunk = 5}); // and in chunks
  expect_like_transformers(model, "gpt2");
}

TEST(LanguageModel, KeepsWhatTheCacheHoldsOfAPrompt) {
  test::TempFolder folder;
  const nlohmann::json& golden = golden_language("gpt2");
  test::write_language_folder(folder.path(), golden["config"], test::language_tensors(golden));
  LanguageModel model = LanguageModel::load(folder.path());
  const auto prompt = golden["prompt"].get<std::vector<int>>();
  const auto whole = golden["greedy"].get<std::vector<int>>();
  const GenerateOptions few = {.max_new = 8, .stop = std::vector<int>{}};
  const std::vector<int> first(whole.begin(), whole.begin() + 8);
  EXPECT_EQ(model.generate(prompt, few).tokens, first);
  EXPECT_EQ(model.generate(std::vector<int>{5, 6}, few).tokens.size(), 8U);
  EXPECT_EQ(model.generate(prompt, few).tokens, first);
  EXPECT_EQ(model.generate(prompt, few).tokens, first);
}

/// Steps until all texts have ended: the tokens of each, and why it ended.
std::map<GenerationBatch::Id, Generated> written(GenerationBatch& batch) {
  std::map<GenerationBatch::Id, Generated> all;
  while (batch.running() + batch.waiting() > 0)
    for (const auto& event : batch.step()) {
      EXPECT_EQ(event.error, "");
      if (event.token)
        all[event.id].tokens.push_back(*event.token);
      if (event.ends)
        all[event.id].reason = *event.ends;
    }
  return all;
}

class Batches : public testing::TestWithParam<const char*> {};

TEST_P(Batches, WritesEachTextAsIfItWereAlone) {
  test::TempFolder folder;
  const nlohmann::json& golden = golden_language(GetParam());
  test::write_language_folder(folder.path(), golden["config"], test::language_tensors(golden));
  LanguageModel alone = LanguageModel::load(folder.path());
  LanguageModel model = LanguageModel::load(folder.path(), {.sequences = 3, .chunk = 5});
  EXPECT_EQ(model.sequences(), 3);
  const auto prompt = golden["prompt"].get<std::vector<int>>();
  GenerationBatch batch(model);
  std::map<GenerationBatch::Id, Generated> expected;
  for (int i = 0; i < 5; ++i) { // more than there are sequences, of different lengths
    std::vector<int> one(prompt.begin() + 2 * i, prompt.end());
    GenerateOptions options{.max_new = 6 + 5 * i, .stop = std::vector<int>{}};
    if (i % 2 == 1)
      options = {.max_new = 20,
                 .temperature = 0.7,
                 .top_k = 20,
                 .presence_penalty = 0.5,
                 .frequency_penalty = 0.25,
                 .seed = 7,
                 .stop = std::vector<int>{}};
    expected[batch.add(one, options)] = alone.generate(one, options);
  }
  EXPECT_EQ(batch.waiting(), 5U);
  (void)batch.step();
  EXPECT_EQ(batch.running(), 3U);
  const auto all = written(batch);
  ASSERT_EQ(all.size(), expected.size());
  for (const auto& [id, text] : expected) {
    EXPECT_EQ(all.at(id).tokens, text.tokens) << id;
    EXPECT_EQ(all.at(id).reason, text.reason) << id;
  }
  EXPECT_EQ(model.generate(prompt, {.max_new = 64, .stop = std::vector<int>{}}).tokens,
            golden["greedy"].get<std::vector<int>>());
}

INSTANTIATE_TEST_SUITE_P(Some, Batches, testing::Values("llama", "gemma2", "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GenerationBatch, CancelledTextsLeaveTheirSequenceToOthers) {
  test::TempFolder folder;
  const nlohmann::json& golden = golden_language("gpt2");
  test::write_language_folder(folder.path(), golden["config"], test::language_tensors(golden));
  LanguageModel model = LanguageModel::load(folder.path(), {.context = 16, .sequences = 2});
  const auto prompt = golden["prompt"].get<std::vector<int>>();
  GenerationBatch batch(model);
  const GenerateOptions endless{.max_new = 1000, .stop = std::vector<int>{}};
  const auto a = batch.add(prompt, endless), b = batch.add(prompt, endless),
             c = batch.add(prompt, endless), none = batch.add(prompt, {.max_new = 0});
  (void)batch.step();
  EXPECT_EQ(batch.running(), 2U);
  batch.cancel(a);
  const auto all = written(batch);
  EXPECT_FALSE(all.contains(a));
  EXPECT_FALSE(all.contains(none)) << "it ended in the first step";
  const auto whole = golden["greedy"].get<std::vector<int>>();
  for (const auto id : {b, c}) { // the context holds 4 more, and one needs no room
    EXPECT_EQ(all.at(id).reason, StopReason::Context);
    EXPECT_EQ(all.at(id).tokens, std::vector<int>(whole.begin(), whole.begin() + 5));
  }
  const auto again = batch.add(prompt, endless);
  const auto events = batch.step(); // one token, of the whole prompt but its last token held
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].id, again);
  EXPECT_EQ(events[0].reused, prompt.size() - 1);
  EXPECT_EQ(written(batch).at(again).reason, StopReason::Context);
}

TEST(GenerationBatch, ConversationsInTurnKeepTheirBlocks) {
  test::TempFolder folder;
  const nlohmann::json& golden = golden_language("gpt2");
  test::write_language_folder(folder.path(), golden["config"], test::language_tensors(golden));
  LanguageModel model = LanguageModel::load(folder.path(), {.sequences = 2});
  GenerationBatch batch(model);
  const std::vector<int> header = {1, 2, 3};
  std::vector<int> a = header, b = header, c = header;
  for (int i = 0; i < 8; ++i) {
    a.push_back(10 + i);
    b.push_back(20 + i);
    c.push_back(30 + i);
  }
  // One more turn of a conversation: how much of it was there, of how many tokens.
  const auto turn = [&](std::vector<int>& conversation) {
    const std::size_t before = conversation.size();
    std::size_t reused = 0;
    (void)batch.add(conversation, {.max_new = 2, .stop = std::vector<int>{}});
    while (batch.running() + batch.waiting() > 0)
      for (const auto& event : batch.step()) {
        conversation.push_back(event.token.value());
        reused = event.reused;
      }
    conversation.push_back(4);
    return std::pair(reused, before);
  };
  EXPECT_EQ(turn(a).first, 0U);
  EXPECT_EQ(turn(b).first, header.size()) << "copied, so that the other keeps its tokens";
  for (int i = 0; i < 2; ++i)
    for (std::vector<int>* one : {&a, &b}) { // all but the last token written and the new one
      const auto [reused, size] = turn(*one);
      EXPECT_EQ(reused, size - 2);
    }
  EXPECT_EQ(turn(c).first, header.size()) << "more conversations than texts at once";
  for (std::vector<int>* one : {&b, &a, &c}) {
    const auto [reused, size] = turn(*one);
    EXPECT_EQ(reused, size - 2);
  }
}

} // namespace
} // namespace egret::models
