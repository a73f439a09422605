// Folders of speech models that are damaged, unknown or contradict themselves: refused before work
// starts, with the file and the thing named.
#include "egret/functional.h"
#include "egret/speech_model.h"
#include "support/published_models.h"

#include <gtest/gtest.h>

namespace egret::models {
namespace {

class SpeechModelErrors : public ::testing::Test {
protected:
  test::PublishedModel model_{"speech/whisper.json"};
  nlohmann::json generation_ = model_.golden["generation_config"];
  nlohmann::json front_ = {{"feature_size", 16}};
  test::TempFolder folder_;

  void write() {
    model_.write(folder_.path());
    test::write_json(folder_ / "generation_config.json", generation_);
    test::write_json(folder_ / "preprocessor_config.json", front_);
  }
  void expect(ErrorKind kind, std::initializer_list<const char*> parts) {
    write();
    const std::string message = test::error_of(kind, [&] { SpeechModel::load(folder_.path()); });
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << message << "\n  lacks: " << part;
    model_ = test::PublishedModel("speech/whisper.json");
    generation_ = model_.golden["generation_config"];
    front_ = {{"feature_size", 16}};
  }
};

TEST_F(SpeechModelErrors, ConfigurationsAreChecked) {
  model_.config["model_type"] = "wav2vec2";
  expect(ErrorKind::Unsupported, {"config.json", "'wav2vec2'", "whisper"});
  model_.config["use_weighted_layer_sum"] = true;
  expect(ErrorKind::Unsupported, {"'use_weighted_layer_sum'"});
  model_.config["scale_embedding"] = true;
  expect(ErrorKind::Unsupported, {"'scale_embedding'"});
  model_.config["encoder_attention_heads"] = 3;
  expect(ErrorKind::File, {"3 heads do not divide a width of 32"});
  model_.config.erase("d_model");
  expect(ErrorKind::File, {"'d_model' is missing"});
  generation_["suppress_tokens"] = {200};
  expect(ErrorKind::File, {"generation_config.json", "token 200 is not in the vocabulary of 108"});
  generation_["no_timestamps_token_id"] = 60;
  expect(ErrorKind::File, {"generation_config.json", "token 111 is not in the vocabulary"});
  generation_["task_to_id"] = nlohmann::json::object();
  expect(ErrorKind::File, {"'task_to_id' has no 'transcribe'"});
  front_ = {{"feature_size", 80}};
  expect(ErrorKind::File, {"preprocessor_config.json", "'feature_size' is 80", "16"});
}

TEST_F(SpeechModelErrors, TensorsAreThoseOfTheConfiguration) {
  const std::string name = "model.encoder.conv1.weight";
  model_.tensors.erase("model.decoder.layer_norm.bias");
  expect(ErrorKind::File, {"tensor 'model.decoder.layer_norm.bias' is missing ([32]"});
  model_.tensors[name] = zeros({32, 80, 3});
  expect(ErrorKind::File, {name.c_str(), "is [32,80,3], the configuration says [32,16,3]"});
  model_.tensors[name] = zeros({32, 16, 3}, DType::I8);
  expect(ErrorKind::File, {name.c_str(), "is i8; a float is needed"});
  model_.tensors["model.encoder.layers.2.fc1.bias"] = zeros({48});
  expect(ErrorKind::File, {"'model.encoder.layers.2.fc1.bias' is none that a Whisper model"});
}

TEST_F(SpeechModelErrors, RequestsAreChecked) {
  write();
  SpeechModel model = SpeechModel::load(folder_.path());
  const auto refused = [](ErrorKind kind, const char* why, auto run) {
    const std::string message = test::error_of(kind, run);
    EXPECT_NE(message.find(why), std::string::npos) << message;
  };
  const Tensor second = zeros({16000});
  refused(ErrorKind::Value, "the language 'fr'; it knows de, en",
          [&] { (void)model.transcribe(second, {.language = "fr"}); });
  refused(ErrorKind::Value, "there are no samples", [&] { (void)model.transcribe(zeros({0})); });
  refused(ErrorKind::Shape, "not [count]", [&] { (void)model.log_mel(zeros({2, 16000})); });
  refused(ErrorKind::Shape, "the model hears", [&] { (void)model.states(zeros({16, 99})); });
  refused(ErrorKind::Value, "token 108", [&] {
    (void)model.logits(zeros({16, 100}), std::vector<int>{108});
  });
}

} // namespace
} // namespace egret::models
