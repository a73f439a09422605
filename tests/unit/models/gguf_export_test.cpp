// Folders written as GGUF files are the same models with the same tokenizers.
#include "egret/functional.h"
#include "egret/gguf_tokenizer.h"
#include "egret/language_model.h"
#include "support/files.h"
#include "support/language_models.h"
#include "support/small_tokenizer.h"

#include <gtest/gtest.h>

namespace egret::models {
namespace {

using test::golden_language;

void write_model(const std::filesystem::path& folder, const nlohmann::json& golden) {
  test::write_language_folder(folder, golden["config"], test::language_tensors(golden));
}

/// |a - b| / |b| by the 2-norm.
double distance(const Tensor& a, const Tensor& b) {
  const Tensor off = a - b;
  return std::sqrt((off * off).sum().item() / (b * b).sum().item());
}

class GgufExport : public testing::TestWithParam<const char*> {};

TEST_P(GgufExport, GivesTheLogitsOfTransformers) {
  test::TempFolder folder;
  const nlohmann::json& golden = golden_language(GetParam());
  write_model(folder.path(), golden);
  const GgufReport report =
      export_gguf(folder.path(), folder / "m.gguf", {.type = io::GgmlType::F32});
  EXPECT_FALSE(report.tokenizer);
  for (const QuantizedMatrix& matrix : report.matrices)
    EXPECT_EQ(matrix.error, 0) << matrix.name;
  LanguageModel model = LanguageModel::load(folder / "m.gguf");
  const auto prompt = golden["prompt"].get<std::vector<int>>();
  test::expect_golden(model.logits(prompt).to_vector<double>(), golden["logits"], 1e-4, GetParam());
  EXPECT_EQ(model.config().stop, LanguageModel::load(folder.path()).config().stop);
}

INSTANTIATE_TEST_SUITE_P(All, GgufExport,
                         testing::Values("llama", "llama_3", "llama_linear", "llama_yarn",
                                         "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe",
                                         "gemma", "gemma2", "gemma3", "phi3", "phi3_long", "olmo2",
                                         "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GgufExports, EveryArchitectureIsAmongThem) {
  for (const std::string& name : language_architectures()) {
    const std::string file = name == "gemma3_text" ? "gemma3" : name;
    EXPECT_EQ(golden_language(file)["config"]["model_type"], name);
  }
}

TEST(GgufExports, QuantizedOnesAreNearTheModel) {
  test::TempFolder folder;
  const nlohmann::json& golden = golden_language("llama");
  write_model(folder.path(), golden);
  const auto prompt = golden["prompt"].get<std::vector<int>>();
  const Tensor exact = LanguageModel::load(folder.path()).logits(prompt);
  for (const auto& [type, most] : {std::pair(io::GgmlType::F16, 0.005),
                                   {io::GgmlType::BF16, 0.04},
                                   {io::GgmlType::Q8_0, 0.04},
                                   {io::GgmlType::Q4_0, 0.4}}) {
    const std::filesystem::path path = folder / "m.gguf";
    const GgufReport report = export_gguf(folder.path(), path, {.type = type});
    EXPECT_EQ(report.matrices[0].type, io::info_of(type).name);
    EXPECT_EQ(io::GgufFile(path).info("token_embd.weight").type, type);
    LanguageModel model = LanguageModel::load(path);
    EXPECT_LT(distance(model.logits(prompt), exact), most) << io::info_of(type).name;
  }
}

TEST(GgufExports, RowsThatAreNoWholeBlocksBecomeWiderTypes) {
  test::TempFolder folder;
  write_model(folder.path(), golden_language("llama")); // rows of 32 and 48
  const GgufReport report =
      export_gguf(folder.path(), folder / "m.gguf", {.type = io::GgmlType::Q4_K});
  for (const QuantizedMatrix& matrix : report.matrices)
    EXPECT_EQ(matrix.type, matrix.name.find("ffn_down") == std::string::npos ? "Q8_0" : "F16");
}

TEST(GgufExports, LayersThatSlideAndDenseLayersAreKept) {
  test::TempFolder folder;
  nlohmann::json golden = golden_language("gemma2");
  golden["config"]["layer_types"] = {"full_attention", "sliding_attention"};
  write_model(folder.path(), golden);
  export_gguf(folder.path(), folder / "m.gguf", {.type = io::GgmlType::F32});
  LanguageModel read = LanguageModel::load(folder / "m.gguf");
  EXPECT_EQ(read.config().sliding, (std::vector<bool>{false, true}));
  EXPECT_EQ(read.config().window, 8);
}

TEST(GgufExports, WhatHasNoKeyIsRefused) {
  test::TempFolder folder;
  nlohmann::json golden = golden_language("gpt2");
  golden["config"]["activation_function"] = "relu";
  write_model(folder.path(), golden);
  const std::string said = test::error_of(ErrorKind::Unsupported,
                                          [&] { export_gguf(folder.path(), folder / "m.gguf"); });
  EXPECT_NE(said.find("the activation: GGUF files of the architecture 'gpt2' cannot say it"),
            std::string::npos)
      << said;
  EXPECT_FALSE(std::filesystem::exists(folder / "m.gguf"));
}

/// The golden texts of a tokenizer.json whose keys were found to be `whole` or not.
void expect_same_tokenizer(const nlohmann::json& tokenizer, bool whole) {
  test::TempFolder folder;
  write_model(folder.path(), golden_language("llama"));
  test::write_json(folder / "tokenizer.json", tokenizer);
  test::write_json(
      folder / "tokenizer_config.json",
      {{"eos_token", "</s>"}, {"bos_token", "<s>"}, {"chat_template", test::kSmallTemplate}});
  const GgufReport report =
      export_gguf(folder.path(), folder / "m.gguf", {.type = io::GgmlType::F32});
  EXPECT_TRUE(report.tokenizer);
  EXPECT_EQ(report.whole_tokenizer, whole);
  const io::GgufFile file(folder / "m.gguf");
  EXPECT_EQ(file.metadata().contains("tokenizer.huggingface.json"), whole);
  const Tokenizer exact = Tokenizer::load(folder.path()), read = gguf_tokenizer(file.metadata());
  EXPECT_EQ(read.chat_template(), exact.chat_template());
  EXPECT_EQ(read.special_id("eos_token"), exact.special_id("eos_token"));
  for (const char* text : {"hello you", "a<s> b </s>c", "<|user|>hello<|end|><|assistant|>", ""})
    EXPECT_EQ(read.encode(text), exact.encode(text)) << text;
}

TEST(GgufExports, TokenizersOfKnownWordsNeedNoCopy) {
  nlohmann::json tokenizer = test::small_tokenizer();
  expect_same_tokenizer(tokenizer, false);
  tokenizer["model"]["merges"] = {"h e", "l l"};
  tokenizer["model"]["vocab"].erase("X");
  for (const auto& [text, id] : {std::pair("he", 64), {"ll", 65}})
    tokenizer["model"]["vocab"][text] = id;
  expect_same_tokenizer(tokenizer, false);
}

TEST(GgufExports, OtherTokenizersStandInTheFileAsAWhole) {
  nlohmann::json tokenizer = test::small_tokenizer();
  tokenizer["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"},
         {"pattern", {{"Regex", "l+"}}},
         {"behavior", "Isolated"},
         {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  expect_same_tokenizer(tokenizer, true);
  tokenizer = test::small_tokenizer();
  tokenizer["added_tokens"][3]["rstrip"] = true; // no key for it
  expect_same_tokenizer(tokenizer, true);
}

TEST(GgufExports, PiecesWithBytesKeepTheirMerges) {
  // Scores give every way to make a piece; a file that has one of two needs its merges too.
  nlohmann::json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  int id = 3;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[fmt::format("<0x{:02X}>", byte)] = id++;
  for (const char* piece : {"\u2581", "a", "b", "c", "ab", "bc", "abc"})
    vocabulary[piece] = id++;
  const auto special = [](int at, const char* text) {
    return nlohmann::json{
        {"id", at},        {"content", text}, {"special", true},    {"single_word", false},
        {"lstrip", false}, {"rstrip", false}, {"normalized", false}};
  };
  const auto replace = [](const char* from, const char* to) {
    return nlohmann::json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  for (const bool all : {true, false}) {
    nlohmann::json merges = {"a b", "b c", "a bc", "ab c"};
    if (!all)
      merges.erase(3);
    expect_same_tokenizer(
        {{"version", "1.0"},
         {"added_tokens", {special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")}},
         {"normalizer",
          {{"type", "Sequence"},
           {"normalizers",
            {{{"type", "Prepend"}, {"prepend", "\u2581"}}, replace(" ", "\u2581")}}}},
         {"pre_tokenizer", nullptr},
         {"post_processor", nullptr},
         {"decoder",
          {{"type", "Sequence"},
           {"decoders",
            {replace("\u2581", " "),
             {{"type", "ByteFallback"}},
             {{"type", "Fuse"}},
             {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
         {"model",
          {{"type", "BPE"},
           {"unk_token", "<unk>"},
           {"fuse_unk", true},
           {"byte_fallback", true},
           {"vocab", vocabulary},
           {"merges", merges}}}},
        false);
  }
}

TEST(GgufExports, SearchedScalesAreNearerThanTheSpanOfAGroup) {
  Generator random(5);
  const Tensor values = randn({16, 1024}, random).eval();
  const auto error = [&](io::GgmlType type) {
    return distance(io::dequantized(type, io::quantized_blocks(type, values)), values);
  };
  // A step of a 15th of the span is off by 0.078 here.
  EXPECT_LT(error(io::GgmlType::Q4_K), 0.072);
  EXPECT_LT(error(io::GgmlType::Q4_K), error(io::GgmlType::Q4_0));
}

} // namespace
} // namespace egret::models
