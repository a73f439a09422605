// A Whisper from a folder gives the spectrogram, states, logits and transcriptions that
// transformers gives (tests/golden/make_speech.py).
#include "egret/audio.h"
#include "egret/speech_model.h"
#include "support/published_models.h"

#include <gtest/gtest.h>

namespace egret::models {
namespace {

class SpeechModelTest : public ::testing::Test {
protected:
  void SetUp() override {
    model_.write(folder_.path());
    test::write_json(folder_ / "generation_config.json", model_.golden["generation_config"]);
  }
  SpeechModel load() const { return SpeechModel::load(folder_.path()); }

  /// sound() of make_speech.py.
  static Tensor sound(double seconds) {
    const auto count = static_cast<std::size_t>(seconds * 16000);
    std::vector<float> samples;
    std::size_t i = 0;
    for (const double x : test::golden_numbers(count, 3999))
      samples.push_back(static_cast<float>(x * static_cast<double>(i++ / 1600 * 7 % 5) / 8));
    return tensor(samples);
  }
  Tensor first_window(const SpeechModel& model) const {
    return model.log_mel(sound(0.83)).narrow(1, 0, 100);
  }

  const test::PublishedModel model_{"speech/whisper.json"};
  test::TempFolder folder_;
};

TEST_F(SpeechModelTest, SpectrogramStatesAndLogitsAreThoseOfTransformers) {
  SpeechModel model = load();
  EXPECT_EQ(model.window_samples(), 16000);
  const Tensor frames = first_window(model);
  const auto every_seventh = [](const Tensor& a, std::int64_t axis) {
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < a.size(axis); i += 7)
      places.push_back(i);
    return take(a, tensor(places), axis).to_vector<double>();
  };
  test::expect_golden(every_seventh(frames, 1), model_.golden["mel"], 1e-5, "log mel");
  test::expect_golden(every_seventh(model.states(frames), 0), model_.golden["states"], 1e-4,
                      "states");
  const auto prompt = model_.golden["prompt"].get<std::vector<int>>();
  test::expect_golden(model.logits(frames, prompt).to_vector<double>(), model_.golden["logits"],
                      1e-4, "logits");
  EXPECT_EQ(model.language(frames), model_.golden["language"]);
}

TEST_F(SpeechModelTest, TranscriptionsAreTheTokensOfTransformers) {
  SpeechModel model = load();
  const auto plain = model.transcribe(sound(0.83), {.language = "en", .times = false});
  ASSERT_EQ(plain.size(), 1U);
  EXPECT_EQ(plain[0].tokens, model_.golden["plain"].get<std::vector<int>>());
  EXPECT_NEAR(plain[0].end, 0.83, 1e-9);

  std::size_t calls = 0;
  const auto timed = model.transcribe(sound(2.3), {.language = "de", .translate = true},
                                      [&](const SpeechSegment&) { return ++calls > 0; });
  const nlohmann::json& golden = model_.golden["timed"];
  ASSERT_EQ(timed.size(), golden.size());
  EXPECT_EQ(calls, timed.size());
  for (std::size_t i = 0; i < timed.size(); ++i) {
    EXPECT_NEAR(timed[i].begin, golden[i]["begin"].get<double>(), 1e-3) << i;
    EXPECT_NEAR(timed[i].end, golden[i]["end"].get<double>(), 1e-3) << i;
    EXPECT_EQ(timed[i].tokens, golden[i]["tokens"].get<std::vector<int>>()) << i;
  }
  const auto one = model.transcribe(sound(2.3), {.language = "de", .translate = true},
                                    [](const SpeechSegment&) { return false; });
  EXPECT_EQ(one.size(), 1U);
}

TEST_F(SpeechModelTest, WithoutLanguageTheLikeliestIsTaken) {
  SpeechModel model = load();
  const std::string language = model_.golden["language"];
  EXPECT_EQ(model.transcribe(sound(0.83))[0].tokens,
            model.transcribe(sound(0.83), {.language = language})[0].tokens);
}

} // namespace
} // namespace egret::models
