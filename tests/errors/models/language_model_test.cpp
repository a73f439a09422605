// Folders of models that are damaged, unknown or contradict themselves: refused before work starts,
// with the file and the thing named.
#include "egret/functional.h"
#include "egret/language_model.h"
#include "support/files.h"
#include "support/language_models.h"

#include <gtest/gtest.h>

namespace egret::models {
namespace {

using nlohmann::json;

class LanguageModelErrors : public testing::Test {
protected:
  const json& golden_ = test::golden_language("llama_3");
  json config_ = golden_["config"];
  io::TensorMap tensors_ = test::language_tensors(golden_);
  test::TempFolder folder_;

  void expect(ErrorKind kind, std::initializer_list<const char*> parts,
              const LanguageModelOptions& options = {}) {
    test::write_language_folder(folder_.path(), config_, tensors_);
    const std::string message =
        test::error_of(kind, [&] { LanguageModel::load(folder_.path(), options); });
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << message << "\n  lacks: " << part;
  }
};

TEST_F(LanguageModelErrors, AModelThatIsNotThereIsNamed) {
  const std::string message =
      test::error_of(ErrorKind::File, [] { LanguageModel::load("owner/name"); });
  EXPECT_EQ(message, "LanguageModel: owner/name: there is no such folder or file; it must be on "
                     "this machine, egret downloads nothing");
}

TEST_F(LanguageModelErrors, UnknownArchitecturesAndKeysAreNamed) {
  config_["model_type"] = "mamba";
  expect(ErrorKind::Unsupported, {"config.json", "'mamba'", "llama", "gpt2"});
  config_ = golden_["config"];
  config_["attention_sinks"] = 4;
  expect(ErrorKind::Unsupported, {"config.json", "'attention_sinks'", "rms_norm_eps"});
  config_ = golden_["config"];
  config_["rope_parameters"]["rope_type"] = "spiral";
  expect(ErrorKind::Unsupported, {"'spiral'", "yarn"});
  config_ = golden_["config"];
  config_["hidden_act"] = "sine";
  expect(ErrorKind::Unsupported, {"'sine'", "silu"});
  config_ = golden_["config"];
  config_["quantization_config"] = {{"bits", 4}};
  expect(ErrorKind::Unsupported, {"quantization_config"});
}

TEST_F(LanguageModelErrors, IgnoredKeysAreAllowed) {
  config_["attention_sinks"] = 4;
  test::write_language_folder(folder_.path(), config_, tensors_);
  EXPECT_NO_THROW(LanguageModel::load(folder_.path(), {.ignored_keys = {"attention_sinks"}}));
}

TEST_F(LanguageModelErrors, ValuesOfTheConfigurationAreChecked) {
  for (const auto& [key, value, part] :
       {std::tuple<const char*, json, const char*>{"hidden_size", nullptr, "is missing"},
        {"hidden_size", "32", "not an integer"},
        {"num_hidden_layers", -1, "not an integer from 1"},
        {"num_hidden_layers", 1e30, "not an integer"},
        {"num_key_value_heads", 3, "do not divide"},
        {"rms_norm_eps", "small", "not a number"},
        {"eos_token_id", "end", "not a token's number"},
        {"tie_word_embeddings", 1, "not true or false"},
        {"rope_parameters", 7, "not an object"}}) {
    config_ = golden_["config"];
    config_[key] = value;
    expect(ErrorKind::File, {"config.json", part});
  }
}

TEST_F(LanguageModelErrors, NumbersBeyondF64AreNoJson) {
  test::write_language_folder(folder_.path(), config_, tensors_);
  test::write_file(folder_ / "config.json", R"({"model_type": "llama", "hidden_size": 1e999})");
  const std::string message =
      test::error_of(ErrorKind::File, [&] { LanguageModel::load(folder_.path()); });
  EXPECT_NE(message.find("config.json: at byte 0: not JSON"), std::string::npos) << message;
}

TEST_F(LanguageModelErrors, TensorsThatDoNotFitAreNamed) {
  const std::string name = "model.layers.1.self_attn.q_proj.weight";
  const Tensor weight = tensors_.at(name);
  tensors_.erase(name);
  expect(ErrorKind::File, {name.c_str(), "is missing", "[32,32]"});
  tensors_.emplace(name, zeros({32, 31}));
  expect(ErrorKind::File, {"model.safetensors", name.c_str(), "[32,31]", "[32,32]"});
  tensors_.at(name) = weight;
  tensors_.emplace("model.layers.2.self_attn.q_proj.weight", weight);
  expect(ErrorKind::File, {"model.layers.2.self_attn.q_proj.weight", "none that"});
}

TEST_F(LanguageModelErrors, ShardsAreChecked) {
  const auto refused = [&](const char* file, const char* part) {
    test::expect_refused(
        folder_ / file, [&] { LanguageModel::load(folder_.path()); }, part);
  };
  const char* index = "model.safetensors.index.json";
  test::write_sharded_folder(folder_.path(), config_, tensors_, 2);
  const std::string good = test::read_file(folder_ / index);
  json listed = json::parse(good);
  const std::string first = tensors_.begin()->first;
  listed["weight_map"][first] = "../model-0.safetensors";
  test::write_json(folder_ / index, listed);
  refused(index, "no name of a file in the folder");
  listed["weight_map"][first] = "model-1.safetensors";
  test::write_json(folder_ / index, listed);
  refused("model-0.safetensors", "is here");
  listed["weight_map"].erase(first);
  test::write_json(folder_ / index, listed);
  refused("model-0.safetensors", "is not listed");
  listed = json::parse(good);
  listed["weight_map"]["more"] = "model-1.safetensors";
  test::write_json(folder_ / index, listed);
  refused("model-1.safetensors", "'more' is missing");
  test::write_file(folder_ / index, "{");
  refused(index, "not JSON");
  test::write_file(folder_ / index, good);
  std::filesystem::resize_file(folder_ / "model-1.safetensors", 5000);
  refused("model-1.safetensors", "");
  std::filesystem::remove(folder_ / "model-1.safetensors");
  refused("model-1.safetensors", "cannot open");
}

/// Metadata of GGUF files may be of any type and hold any bytes.
TEST(GgufModelErrors, MetadataIsNoText) {
  test::TempFolder folder;
  const auto path = folder / "model.gguf";
  test::write_gguf(path, test::golden_language("llama_3"));
  io::GgufMetadata metadata = io::GgufFile(path).metadata();
  metadata["llama.vocab_size"] = std::int64_t{64};
  const auto expect = [&](const char* key, const io::GgufValue& value, ErrorKind kind,
                          const char* part) {
    io::GgufMetadata changed = metadata;
    changed[key] = value;
    io::save_gguf(path, changed, {});
    const std::string message = test::error_of(kind, [&] { LanguageModel::load(path); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  const std::string bytes = "\xff\x1b[2J";
  expect("llama.block_count", bytes, ErrorKind::File,
         "'num_hidden_layers' or 'n_layer' is \"\uFFFD\\u001b[2J\", not an integer");
  expect("llama.rope.freq_base", bytes, ErrorKind::File, "'rope_theta' is");
  expect("llama.attention.value_length", bytes, ErrorKind::Unsupported, "heads of keys of");
  expect("tokenizer.ggml.eos_token_id", bytes, ErrorKind::File, "'eos_token_id' is");
}

TEST(GgufModelErrors, TheTableOfTokensIsANumber) {
  using test::little_endian;
  const auto text = [](std::string_view value) {
    return little_endian(value.size(), 8) + std::string(value);
  };
  std::string file = "GGUF" + little_endian(3, 4) + little_endian(1, 8) + little_endian(1, 8) +
                     text("general.architecture") + little_endian(8, 4) + text("llama") +
                     text("token_embd.weight") + little_endian(0, 16);
  file.resize((file.size() + 31) / 32 * 32 + 32);
  test::TempFolder folder;
  const auto path = folder / "model.gguf";
  test::write_file(path, file);
  const std::string message = test::error_of(ErrorKind::File, [&] { LanguageModel::load(path); });
  EXPECT_NE(message.find("is missing"), std::string::npos) << message;
}

TEST_F(LanguageModelErrors, PromptsAndOptionsAreChecked) {
  test::write_language_folder(folder_.path(), config_, tensors_);
  LanguageModel model = LanguageModel::load(folder_.path(), {.context = 8});
  const auto refused = [&](std::vector<int> prompt, const GenerateOptions& options,
                           const char* part) {
    const std::string message =
        test::error_of(ErrorKind::Value, [&] { model.generate(prompt, options); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  refused({}, {}, "no tokens");
  refused({64}, {}, "token 64 is not in the vocabulary of 64");
  refused({-1}, {}, "token -1");
  refused(std::vector<int>(9, 1), {}, "9 tokens, the context holds 8");
  refused({1}, {.max_new = -1}, "max_new");
  refused({1}, {.temperature = -1}, "temperature");
  refused({1}, {.top_k = -1}, "top_k");
  refused({1}, {.top_p = 0}, "top_p");
  refused({1}, {.min_p = 2}, "min_p");
  refused({1}, {.repetition_penalty = 0}, "repetition_penalty");
}

} // namespace
} // namespace egret::models
