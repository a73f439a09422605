// Folders of encoders that are damaged, unknown or contradict themselves: refused before work
// starts, with the file and the thing named.
#include "egret/functional.h"
#include "egret/text_encoder.h"
#include "support/published_models.h"

#include <gtest/gtest.h>

namespace egret::models {
namespace {

class TextEncoderErrors : public ::testing::Test {
protected:
  test::PublishedModel model_{"encoders/bert.json"};
  test::TempFolder folder_;

  void expect(ErrorKind kind, std::initializer_list<const char*> parts) {
    model_.write(folder_.path());
    const std::string message = test::error_of(kind, [&] { TextEncoder::load(folder_.path()); });
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << message << "\n  lacks: " << part;
    model_ = test::PublishedModel("encoders/bert.json");
  }
};

TEST_F(TextEncoderErrors, UnknownArchitecturesKeysAndValuesAreNamed) {
  model_.config["model_type"] = "llama";
  expect(ErrorKind::Unsupported, {"config.json", "'llama'", "bert", "mpnet"});
  model_.config["use_mixture"] = true;
  expect(ErrorKind::Unsupported, {"config.json", "'use_mixture'"});
  model_.config["is_decoder"] = true;
  expect(ErrorKind::Unsupported, {"'is_decoder'"});
  model_.config["position_embedding_type"] = "relative_key";
  expect(ErrorKind::Unsupported, {"position_embedding_type", "'relative_key'"});
  model_.config["num_attention_heads"] = 5;
  expect(ErrorKind::File, {"5 heads do not divide a width of 24"});
  model_.config.erase("vocab_size");
  expect(ErrorKind::File, {"'vocab_size' is missing"});
}

TEST_F(TextEncoderErrors, TensorsAreThoseOfTheConfiguration) {
  const std::string name = "encoder.layer.1.intermediate.dense.weight";
  model_.tensors.erase(name);
  expect(ErrorKind::File,
         {"tensor 'encoder.layer.1.intermediate.dense.weight' is missing ([40,24]"});
  model_.tensors[name] = zeros({24, 40});
  expect(ErrorKind::File, {"model.safetensors", name.c_str(), "is [24,40]", "says [40,24]"});
  model_.tensors[name] = zeros({40, 24}, DType::I64);
  expect(ErrorKind::File, {"model.safetensors", name.c_str(), "is i64; a float is needed"});
  model_.tensors["encoder.layer.2.intermediate.dense.weight"] = zeros({40, 24});
  expect(ErrorKind::File, {"'encoder.layer.2.intermediate.dense.weight' is none that an encoder of "
                           "the architecture 'bert'"});
}

TEST_F(TextEncoderErrors, ModulesAndPoolingAreKnown) {
  const auto file = [&](const char* name, const nlohmann::json& json) {
    std::filesystem::create_directories(folder_ / "1_Pooling");
    test::write_json(folder_ / name, json);
  };
  file("modules.json", {{{"type", "sentence_transformers.models.Dense"}, {"path", "2_Dense"}}});
  expect(ErrorKind::Unsupported, {"modules.json", "Dense", "Normalize"});
  file("modules.json", {{{"type", "sentence_transformers.models.Transformer"}}});
  file("1_Pooling/config.json", {{"pooling_mode_weightedmean_tokens", true}});
  expect(ErrorKind::Unsupported, {"1_Pooling/config.json", "pooling_mode_mean_tokens"});
}

TEST_F(TextEncoderErrors, TokensMustFit) {
  model_.write(folder_.path());
  TextEncoder encoder = TextEncoder::load(folder_.path());
  const auto refused = [&](const std::vector<int>& tokens, const std::vector<int>& types,
                           const char* why) {
    const std::string message =
        test::error_of(ErrorKind::Value, [&] { (void)encoder.hidden(tokens, types); });
    EXPECT_NE(message.find(why), std::string::npos) << message;
  };
  refused({}, {}, "no tokens");
  refused(std::vector<int>(33, 1), {}, "the text has 33 tokens, the encoder reads 32");
  refused({48}, {}, "token 48 is not in the vocabulary of 48");
  refused({1, 2}, {0}, "1 types for 2 tokens");
  refused({1}, {2}, "type 2 of a token; the encoder has 2");
  EXPECT_THROW((void)encoder.embeddings(std::vector<std::vector<int>>{{1}, {}}), Error);
  EXPECT_THROW(TextEncoder::load(folder_.path(), {.batch = 0}), Error);
}

} // namespace
} // namespace egret::models
