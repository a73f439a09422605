// Language models from folders and GGUF files give the logits and the greedy text that transformers
// gives (tests/golden/make_language.py).
#include "egret/language_model.h"
#include "support/files.h"
#include "support/language_models.h"

#include <gtest/gtest.h>

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
                                         "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe",
                                         "gemma", "gemma2", "gemma3", "phi3", "phi3_long", "olmo2",
                                         "gpt2"),
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

} // namespace
} // namespace egret::models
