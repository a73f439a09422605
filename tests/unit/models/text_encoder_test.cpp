// Encoders of text from folders give the hidden states that transformers gives
// (tests/golden/make_encoders.py), and embeddings by the pooling that the folder names.
#include "egret/text_encoder.h"
#include "support/published_models.h"

#include <gtest/gtest.h>

namespace egret::models {
namespace {

using test::PublishedModel;
using Texts = std::vector<std::vector<int>>;

std::vector<float> unit_mean(const std::vector<double>& states, std::size_t width) {
  std::vector<float> mean(width);
  double squares = 0;
  for (std::size_t i = 0; i < width; ++i) {
    double sum = 0;
    for (std::size_t at = i; at < states.size(); at += width)
      sum += states[at];
    mean[i] = static_cast<float>(sum);
    squares += sum * sum;
  }
  for (float& x : mean)
    x = static_cast<float>(x / std::sqrt(squares));
  return mean;
}

class TextEncoders : public ::testing::TestWithParam<const char*> {};

TEST_P(TextEncoders, FolderGivesTheStatesOfTransformers) {
  test::TempFolder folder;
  const PublishedModel model(std::string("encoders/") + GetParam() + ".json");
  model.write(folder.path());
  TextEncoder encoder = TextEncoder::load(folder.path());
  EXPECT_EQ(encoder.context(), 32);
  const Texts texts = model.golden["texts"].get<Texts>();
  const auto embeddings = encoder.embeddings(texts); // both in one padded run
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const nlohmann::json& hidden = model.golden["hidden"][i];
    test::expect_golden(encoder.hidden(texts[i]).to_vector<double>(), hidden, 1e-5, GetParam());
    const auto mean = unit_mean(hidden.get<std::vector<double>>(), 24);
    ASSERT_EQ(embeddings[i].size(), mean.size());
    for (std::size_t k = 0; k < mean.size(); ++k)
      EXPECT_NEAR(embeddings[i][k], mean[k], 1e-5) << GetParam() << " text " << i << " at " << k;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TextEncoders,
                         ::testing::Values("bert", "bert_masked", "roberta", "electra",
                                           "distilbert", "mpnet"),
                         [](const auto& info) { return std::string(info.param); });

class TextEncoderTest : public ::testing::Test {
protected:
  const PublishedModel model_{"encoders/bert.json"};
  const Texts texts_ = model_.golden["texts"].get<Texts>();
  test::TempFolder folder_;

  TextEncoder load(const nlohmann::json& pooling, const TextEncoderOptions& options = {}) {
    model_.write(folder_.path());
    std::filesystem::create_directories(folder_ / "1_Pooling");
    test::write_json(folder_ / "1_Pooling/config.json", pooling);
    return TextEncoder::load(folder_.path(), options);
  }
};

TEST_F(TextEncoderTest, PoolsAsTheFolderSays) {
  TextEncoder encoder = load({{"pooling_mode_cls_token", true}});
  EXPECT_EQ(encoder.pooling(), Pooling::First);
  for (const auto& [word, expected] :
       {std::pair{"mean", Pooling::Mean}, {"lasttoken", Pooling::Last}, {"max", Pooling::Max}})
    EXPECT_EQ(load({{"pooling_mode", word}}).pooling(), expected);
  const std::vector<double> states = model_.golden["hidden"][1].get<std::vector<double>>();
  for (const Pooling pooling : {Pooling::First, Pooling::Last, Pooling::Max}) {
    std::vector<double> expected(states.begin(), states.begin() + 24);
    if (pooling == Pooling::Last)
      expected.assign(states.end() - 24, states.end());
    else if (pooling == Pooling::Max)
      for (std::size_t i = 24; i < states.size(); ++i)
        expected[i % 24] = std::max(expected[i % 24], states[i]);
    double squares = 0;
    for (const double x : expected)
      squares += x * x;
    const auto values = encoder.embeddings(texts_, pooling)[1]; // the shorter one of a batch
    for (std::size_t i = 0; i < 24; ++i)
      EXPECT_NEAR(values[i], expected[i] / std::sqrt(squares), 1e-5) << int(pooling);
  }
}

TEST_F(TextEncoderTest, BatchesGiveTheSameAsTextsByThemselves) {
  TextEncoder encoder = load({{"pooling_mode", "mean"}}, {.batch = 2});
  const Texts five = {texts_[1], texts_[0], {7}, texts_[1], texts_[0]};
  const auto all = encoder.embeddings(five);
  ASSERT_EQ(all.size(), 5U);
  for (std::size_t i = 0; i < five.size(); ++i) {
    const auto one = encoder.embeddings(Texts(1, five[i]))[0];
    for (std::size_t k = 0; k < 24; ++k)
      EXPECT_NEAR(all[i][k], one[k], 1e-6);
  }
  EXPECT_TRUE(encoder.embeddings({}).empty());
}

TEST_F(TextEncoderTest, TypesOfTokensCount) {
  TextEncoder encoder = load({{"pooling_mode", "mean"}});
  const std::vector<int> types(texts_[1].size(), 1);
  EXPECT_NE(encoder.hidden(texts_[1], types).to_vector<float>(),
            encoder.hidden(texts_[1]).to_vector<float>());
}

TEST_F(TextEncoderTest, EarlyNamesOfNormsAreRead) {
  PublishedModel early = model_;
  for (const char* name : {"embeddings.LayerNorm", "encoder.layer.1.output.LayerNorm"}) {
    early.tensors[std::string(name) + ".gamma"] = early.tensors[std::string(name) + ".weight"];
    early.tensors[std::string(name) + ".beta"] = early.tensors[std::string(name) + ".bias"];
    early.tensors.erase(std::string(name) + ".weight");
    early.tensors.erase(std::string(name) + ".bias");
  }
  early.write(folder_.path());
  test::expect_golden(TextEncoder::load(folder_.path()).hidden(texts_[1]).to_vector<double>(),
                      model_.golden["hidden"][1], 1e-5, "early names");
}

} // namespace
} // namespace egret::models
