// GGUF files written as folders are the same models with the same tokenizers.
#include "egret/functional.h"
#include "egret/gguf_tokenizer.h"
#include "egret/language_model.h"
#include "egret/sharded_tensors.h"
#include "support/files.h"
#include "support/language_models.h"
#include "support/small_tokenizer.h"

#include <gtest/gtest.h>

namespace egret::models {
namespace {

using test::golden_language;

nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(test::read_file(path));
}

/// The golden model as a folder, and that as a GGUF file, in a folder that goes.
class Imported {
public:
  explicit Imported(const std::string& name, io::GgmlType type = io::GgmlType::F32,
                    bool tokenizer = false)
      : golden(golden_language(name)) {
    std::filesystem::create_directory(hub());
    test::write_language_folder(hub(), golden["config"], test::language_tensors(golden));
    if (tokenizer) {
      test::write_json(hub() / "tokenizer.json", test::small_tokenizer());
      test::write_json(
          hub() / "tokenizer_config.json",
          {{"eos_token", "</s>"}, {"bos_token", "<s>"}, {"chat_template", test::kSmallTemplate}});
    }
    export_gguf(hub(), gguf(), {.type = type});
  }
  std::filesystem::path hub() const { return folder_ / "hub"; }
  std::filesystem::path gguf() const { return folder_ / "m.gguf"; }
  std::filesystem::path out() const { return folder_ / "out"; }
  std::vector<int> prompt() const { return golden["prompt"].get<std::vector<int>>(); }
  Tensor logits(const std::filesystem::path& path, LanguageModelOptions options = {}) const {
    return LanguageModel::load(path, options).logits(prompt());
  }

  /// Writes the file again with other metadata and tensors.
  void change(const std::function<void(io::GgufMetadata&, std::vector<io::GgufTensor>&)>& by) {
    std::vector<io::GgufTensor> tensors;
    io::GgufMetadata metadata;
    {
      const io::GgufFile file(gguf());
      metadata = file.metadata();
      for (const io::GgufTensorInfo& info : file.tensors())
        tensors.push_back({info.name, file.read(info.name).eval(), info.type});
    }
    by(metadata, tensors);
    io::save_gguf(gguf(), metadata, tensors);
  }
  /// Why the file cannot become a folder; nothing is written.
  std::string refusal() const {
    std::string said = test::error_of(ErrorKind::Unsupported, [&] { import_gguf(gguf(), out()); });
    EXPECT_FALSE(std::filesystem::exists(out()));
    return said;
  }

  nlohmann::json golden;

private:
  test::TempFolder folder_;
};

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
}

class GgufImport : public testing::TestWithParam<const char*> {};

TEST_P(GgufImport, IsTheFolderThatTheFileWasMadeOf) {
  const Imported model(GetParam());
  EXPECT_FALSE(import_gguf(model.gguf(), model.out()));
  test::expect_golden(model.logits(model.out()).to_vector<double>(), model.golden["logits"], 1e-4,
                      GetParam());
  const io::ShardedTensors was(model.hub()), is(model.out());
  const bool tied = read_json(model.out() / "config.json")["tie_word_embeddings"];
  for (const std::string& name : was.names()) {
    if (!is.contains(name)) { // a tied head, counters, tables that are computed
      EXPECT_TRUE((tied && name == "lm_head.weight") || !is_float(was.info(name).dtype)) << name;
      continue;
    }
    const std::vector<float> a = is.read(name).to_vector<float>(),
                             b = was.read(name).to_vector<float>();
    EXPECT_EQ(is.info(name).shape, was.info(name).shape) << name;
    ASSERT_EQ(a.size(), b.size()) << name;
    for (std::size_t i = 0; i < a.size(); ++i) // norms are stored with 1 added
      ASSERT_NEAR(a[i], b[i], 2e-7) << name;
  }
  for (const std::string& name : is.names())
    EXPECT_TRUE(was.contains(name)) << name;
  const auto exact = LanguageModel::load(model.hub()), read = LanguageModel::load(model.out());
  EXPECT_EQ(read.config().stop, exact.config().stop);
  EXPECT_EQ(read.config().context, exact.config().context);
  EXPECT_EQ(read_json(model.out() / "config.json")["model_type"],
            model.golden["config"]["model_type"]);
}

INSTANTIATE_TEST_SUITE_P(All, GgufImport,
                         testing::Values("llama", "llama_3", "llama_linear", "llama_yarn",
                                         "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe",
                                         "gemma", "gemma2", "gemma3", "phi3", "phi3_long", "olmo2",
                                         "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

class OtherGgufImport : public testing::TestWithParam<const char*> {};

TEST_P(OtherGgufImport, ReadsWhatOtherProgramsWrite) {
  const Imported model(GetParam());
  test::write_gguf(model.gguf(), model.golden);
  import_gguf(model.gguf(), model.out());
  test::expect_golden(model.logits(model.out()).to_vector<double>(), model.golden["logits"], 1e-4,
                      GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, OtherGgufImport,
                         testing::Values("llama", "llama_linear", "llama_yarn", "mixtral", "qwen2",
                                         "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3", "phi3",
                                         "olmo2", "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GgufImports, BlocksBecomeTheValuesThatTheModelComputesWith) {
  for (const io::GgmlType type : {io::GgmlType::F16, io::GgmlType::BF16, io::GgmlType::Q8_0,
                                  io::GgmlType::Q4_0, io::GgmlType::Q4_K}) {
    const Imported model("llama", type);
    import_gguf(model.gguf(), model.out());
    const Tensor want = model.logits(model.gguf(), {.dtype = DType::F32, .dequantize = true});
    const Tensor off = model.logits(model.out(), {.dtype = DType::F32}) - want;
    EXPECT_LT(off.abs().max().item(), 1e-5 * want.abs().max().item()) << io::info_of(type).name;
  }
}

TEST(GgufImports, MatricesHaveTheDtypeThatIsAskedFor) {
  const Imported model("llama", io::GgmlType::Q8_0);
  import_gguf(model.gguf(), model.out(), {.dtype = DType::BF16});
  const io::ShardedTensors tensors(model.out());
  EXPECT_EQ(tensors.info("model.layers.0.mlp.up_proj.weight").dtype, DType::BF16);
  EXPECT_EQ(tensors.info("model.norm.weight").dtype, DType::F32);
  EXPECT_EQ(read_json(model.out() / "config.json")["torch_dtype"], "bfloat16");
  test::error_of(ErrorKind::DType,
                 [&] { import_gguf(model.gguf(), model.out(), {.dtype = DType::I8}); });
}

TEST(GgufImports, TheTokenizerComesAlong) {
  const Imported model("llama", io::GgmlType::F32, true);
  EXPECT_TRUE(import_gguf(model.gguf(), model.out()));
  const Tokenizer exact = Tokenizer::load(model.hub()), read = Tokenizer::load(model.out());
  EXPECT_EQ(read.chat_template(), exact.chat_template());
  EXPECT_EQ(read.special_id("eos_token"), exact.special_id("eos_token"));
  for (const char* text : {"hello you", "a<s> b </s>c", "<|user|>hello<|end|><|assistant|>", ""})
    EXPECT_EQ(read.encode(text), exact.encode(text)) << text;
  EXPECT_EQ(read_json(model.out() / "generation_config.json")["eos_token_id"],
            read_json(model.out() / "config.json")["eos_token_id"]);
}

TEST(GgufImports, ScalingsOfLlama3AreFoundFromTheirDivisors) {
  for (const auto& [factor, low, high, original] : {std::array{8.0, 1.0, 4.0, 8192.0},
                                                    {32.0, 1.0, 4.0, 8192.0},
                                                    {4.0, 2.0, 6.0, 64.0},
                                                    {8.0, 1.0, 1.25, 100.0}}) {
    nlohmann::json golden = golden_language("llama");
    golden["config"]["rope_theta"] = 500000.0;
    golden["config"].erase("rope_parameters");
    golden["config"]["rope_scaling"] = {{"rope_type", "llama3"},
                                        {"factor", factor},
                                        {"low_freq_factor", low},
                                        {"high_freq_factor", high},
                                        {"original_max_position_embeddings", original}};
    const test::TempFolder folder;
    test::write_language_folder(folder.path(), golden["config"], test::language_tensors(golden));
    export_gguf(folder.path(), folder / "m.gguf", {.type = io::GgmlType::F32});
    import_gguf(folder / "m.gguf", folder / "out");
    const auto exact = LanguageModel::load(folder.path()),
               read = LanguageModel::load(folder / "out");
    const auto& a = read.config().rotary.frequencies;
    const auto& b = exact.config().rotary.frequencies;
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], 1e-5 * b[i]) << i << " of factor " << factor;
  }
}

TEST(GgufImports, WhatTransformersHasNoKeyForIsRefused) {
  Imported caps("llama");
  caps.change(
      [](io::GgufMetadata& metadata, auto&) { metadata["llama.attn_logit_softcapping"] = 30.0; });
  expect_contains(caps.refusal(), "soft caps: config.json of the model type 'llama' cannot say it");
  Imported window("llama_3");
  window.change([](io::GgufMetadata& metadata, auto&) {
    metadata["llama.attention.sliding_window"] = std::int64_t{8};
    metadata["llama.attention.sliding_window_pattern"] = std::vector<bool>{true, false};
  });
  expect_contains(window.refusal(), "which layers slide: config.json of the model type 'mistral'");
  Imported scale("qwen3");
  scale.change([](io::GgufMetadata& metadata, auto&) { metadata["qwen3.attention.scale"] = 0.5; });
  expect_contains(scale.refusal(), "the scale of attention: config.json of the model type 'qwen3'");
  Imported biases("llama");
  biases.change([](io::GgufMetadata&, std::vector<io::GgufTensor>& tensors) {
    std::erase_if(tensors, [](const auto& tensor) { return tensor.name == "blk.0.attn_k.bias"; });
  });
  expect_contains(biases.refusal(), "biases of some projections");
  Imported divisors("llama_3");
  divisors.change([](io::GgufMetadata&, std::vector<io::GgufTensor>& tensors) {
    for (io::GgufTensor& tensor : tensors)
      if (tensor.name == "rope_freqs.weight")
        tensor.values = (arange(tensor.values.numel()) + 1).to(DType::F32);
  });
  expect_contains(divisors.refusal(), "the scaling of positions");
  Imported words("llama", io::GgmlType::F32, true);
  words.change([](io::GgufMetadata& metadata, auto&) {
    metadata["tokenizer.ggml.pre"] = std::string("unheard-of");
  });
  expect_contains(words.refusal(), "egret does not know 'unheard-of'");
  Imported other("llama");
  other.change([](io::GgufMetadata& metadata, auto&) {
    metadata["general.architecture"] = std::string("mamba");
  });
  expect_contains(other.refusal(), "egret does not know the architecture 'mamba'");
}

TEST(GgufImports, TextsThatAreNoUtf8AreRefused) {
  for (const char* key : {"tokenizer.chat_template", "tokenizer.huggingface.json"}) {
    Imported model("llama", io::GgmlType::F32, true);
    model.change([&](io::GgufMetadata& metadata, auto&) { metadata[key] = std::string("\xff"); });
    test::error_of(ErrorKind::File, [&] { import_gguf(model.gguf(), model.out()); });
    EXPECT_FALSE(std::filesystem::exists(model.out()));
  }
}

TEST(GgufImports, AFolderThatIsThereIsLeftAlone) {
  const Imported model("llama");
  std::filesystem::create_directory(model.out());
  test::write_file(model.out() / "mine", "mine");
  test::error_of(ErrorKind::File, [&] { import_gguf(model.gguf(), model.out()); });
  EXPECT_EQ(test::read_file(model.out() / "mine"), "mine");
  EXPECT_FALSE(std::filesystem::exists(model.out() / "config.json"));
  test::error_of(ErrorKind::File,
                 [&] { import_gguf(model.hub() / "none.gguf", model.hub() / "x"); });
}

} // namespace
} // namespace egret::models
