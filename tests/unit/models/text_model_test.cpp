#include "egret/checkpoint.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/text_model.h"
#include "support/files.h"

#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <set>

namespace egret::models {
namespace {

TextModel model_of(GptOptions shape, const char* alphabet) {
  Generator g(2);
  data::CharCodec codec(alphabet);
  shape.vocabulary = codec.size();
  Gpt gpt(shape, g);
  return {shape, std::move(codec), std::move(gpt)};
}

std::string written(const TextModel& model, std::string_view prompt, const SampleOptions& options) {
  std::string text;
  continue_text(model, prompt, options, [&](char c) { text += c; });
  return text;
}

struct Holder {
  Gpt model;
  EGRET_FIELDS(model)
};

TEST(TextModel, IsLoadedAsItWasSaved) {
  test::TempFolder folder;
  for (bool tied : {false, true}) {
    TextModel model = model_of({.context = 6, .layers = 2, .width = 8, .heads = 2, .tied = tied},
                               "\n\"\xff\xe4 ab");
    Holder holder{model.gpt};
    save_checkpoint(folder / "a", holder, text_metadata(model.shape, model.codec));
    TextModel back = load_text_model(folder / "a");
    EXPECT_EQ(back.codec.alphabet(), model.codec.alphabet());
    EXPECT_EQ(back.shape.tied, tied);
    const SampleOptions o{.length = 30, .seed = 4};
    EXPECT_EQ(written(back, "ab", o), written(model, "ab", o));
  }
}

TEST(TextModel, TextDependsOnTheSeedOnly) {
  TextModel model = model_of({.context = 6, .layers = 1, .width = 8, .heads = 2}, "\nabcdef");
  const std::string a = written(model, "abc", {.length = 60, .temperature = 1, .seed = 1});
  EXPECT_EQ(a.size(), 60U);
  EXPECT_EQ(a, written(model, "abc", {.length = 60, .temperature = 1, .seed = 1}));
  EXPECT_EQ(a.substr(0, 20), written(model, "abc", {.length = 20, .temperature = 1, .seed = 1}));
  EXPECT_NE(a, written(model, "abc", {.length = 60, .temperature = 1, .seed = 2}));
  EXPECT_EQ(written(model, "", {.length = 5}), written(model, "\n", {.length = 5}));
  EXPECT_EQ(written(model, "a", {.length = 0}), "");
}

// The text that follows from the logits of whole forwards without temperature.
std::string likeliest(TextModel& model, std::string text, std::size_t length, std::size_t keep) {
  std::string seen = text, got;
  const auto context = static_cast<std::size_t>(model.shape.context);
  while (got.size() < length) {
    if (seen.size() > context)
      seen = seen.substr(seen.size() - keep);
    Tensor logits = model.gpt(
        tensor(model.codec.encode(seen), Shape{1, static_cast<std::int64_t>(seen.size())}));
    got += model.codec.alphabet()[logits[0][-1].argmax().item<std::size_t>()];
    seen += got.back();
  }
  return got;
}

TextModel spread_model(std::int64_t context) {
  TextModel model =
      model_of({.context = context, .layers = 2, .width = 16, .heads = 2}, "\nabcdefghijk");
  NoGrad no_grad;
  for (auto& [name, p] : nn::named_parameters(model.gpt)) // so that texts do not repeat themselves
    if (p.rank() == 2)
      p.assign(p * 20);
  return model;
}

// A full context is begun anew with half of it, or with as many as the options say.
TEST(TextModel, TheLikeliestFollowsFromTheLogits) {
  TextModel model = spread_model(6);
  for (const char* prompt : {"fab", "a", "abcdefghi"}) {
    const std::string got = written(model, prompt, {.length = 12, .temperature = 0});
    EXPECT_EQ(got, likeliest(model, prompt, 12, 3));
    EXPECT_EQ(got, written(model, prompt, {.length = 12, .temperature = 1, .top_k = 1, .seed = 9}));
    for (std::int64_t keep : {1, 4, 6})
      EXPECT_EQ(written(model, prompt, {.length = 12, .temperature = 0, .keep = keep}),
                likeliest(model, prompt, 12, static_cast<std::size_t>(keep)))
          << keep;
  }
}

TEST(TextModel, TheCacheDoesNotChangeTheText) {
  TextModel model = spread_model(24);
  for (double temperature : {0.0, 0.7, 1.5}) {
    SampleOptions o{.length = 80, .temperature = temperature, .seed = 5};
    const std::string cached = written(model, "abcde", o);
    o.cache = false;
    EXPECT_EQ(cached, written(model, "abcde", o)) << temperature;
    EXPECT_GT(std::set<char>(cached.begin(), cached.end()).size(), 3u);
  }
  EXPECT_THROW(written(model, "a", {.length = 1, .keep = 25}), Error);
  EXPECT_THROW(written(model, "a", {.length = 1, .keep = -1}), Error);
}

// A model whose logits are known: the last norm gives ones, the head's rows sum to the logits.
TEST(TextModel, DrawsByTheSoftmaxOfTheLogits) {
  TextModel model = model_of({.context = 2, .layers = 1, .width = 2, .heads = 1}, "abcd");
  NoGrad no_grad;
  for (auto& [name, p] : nn::named_parameters(model.gpt))
    p.assign(0.0);
  model.gpt.norm.bias.assign(1.0);
  model.gpt.head->weight.assign(tensor({{0.0, 0.0}, {0.5, 0.5}, {1.0, 1.0}, {-9.0, -9.0}}));
  auto shares = [&](const SampleOptions& o) {
    std::map<char, double> shares;
    for (char c : written(model, "a", o))
      shares[c] += 1.0 / static_cast<double>(o.length);
    return shares;
  };
  auto at_one = shares({.length = 3000, .temperature = 1});
  EXPECT_NEAR(at_one['a'], 0.0900, 0.03); // softmax(0, 1, 2)
  EXPECT_NEAR(at_one['b'], 0.2447, 0.03);
  EXPECT_NEAR(at_one['c'], 0.6652, 0.03);
  EXPECT_EQ(at_one.count('d'), 0U);
  auto cold = shares({.length = 3000, .temperature = 0.5}); // softmax(0, 2, 4)
  EXPECT_NEAR(cold['c'], 0.8668, 0.03);
  auto two = shares({.length = 3000, .temperature = 1, .top_k = 2});
  EXPECT_EQ(two.count('a'), 0U);
  EXPECT_NEAR(two['b'], 0.2689, 0.03);
}

TEST(TextModel, NaNIsNoTextToDrawFrom) {
  TextModel model = model_of({.context = 4, .layers = 1, .width = 4, .heads = 1}, "ab");
  NoGrad no_grad;
  model.gpt.norm.weight.assign(std::nan(""));
  for (double temperature : {0.0, 1.0})
    try {
      written(model, "a", {.length = 1, .temperature = temperature, .top_k = 1});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Value);
      EXPECT_NE(std::string(error.what()).find("gives NaN"), std::string::npos);
    }
}

} // namespace
} // namespace egret::models
