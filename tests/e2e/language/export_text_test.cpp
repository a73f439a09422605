// egret train text --export: what was trained, as a folder that chat, serve and generate load.
#include "egret/functional.h"
#include "egret/language_model.h"
#include "egret/serve.h"
#include "egret/text_model.h"
#include "egret/tokenizer.h"
#include "support/http_client.h"
#include "support/run_tool.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace egret {
namespace {

using test::egret_command;
using test::expect_contains;
using test::Ran;

/// A language of one rule: a number and its double.
std::string text_of_one_rule() {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += fmt::format("{} twice is {}\n", i * 7 % 100, i * 7 % 100 * 2);
  return text;
}

struct SmallText {
  test::TempFolder folder;
  explicit SmallText(const std::string& text) { test::write_file(folder / "text", text); }
  std::string path(const std::string& name) const { return (folder / name).string(); }
  Ran train(const std::string& out, const std::string& more) const {
    return egret_command("train text --data " + path("text") + " --out " + path(out) +
                         " --context 16 --layers 2 --width 16 --heads 2 --batch 8 " + more);
  }
};

std::vector<int> ids_of(const models::TextModel& model, const std::string& text) {
  const auto numbers = model.codec.encode(text);
  return {numbers.begin(), numbers.end()};
}

// What was trained is a language model like any other.
TEST(ExportText, WritesAFolderThatChatServeAndGenerateLoad) {
  const SmallText s(text_of_one_rule());
  const std::string folder = s.path("exported");
  const Ran trained = s.train("model", "--steps 30 --lr 0.01 --export " + folder);
  ASSERT_EQ(trained.code, 0) << trained.err;
  expect_contains(trained.err, "egret chat --model " + folder);

  const models::TextModel text = models::load_text_model(s.folder / "model");
  models::LanguageModel language = models::LanguageModel::load(folder);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const std::string prompt = "14 twice is 28\n";
  EXPECT_EQ(tokenizer.encode(prompt), ids_of(text, prompt));
  EXPECT_EQ(tokenizer.decode(ids_of(text, prompt)), prompt);
  EXPECT_EQ(language.context(), 16);
  const auto numbers = text.codec.encode(prompt);
  const auto want = text.gpt(tensor(numbers).reshape({1, -1})).to_vector();
  const auto got = language.logits(ids_of(text, prompt)).to_vector();
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-5) << i;

  const auto text_by = [&](const std::string& model) {
    const Ran ran = egret_command("generate --model " + model +
                                  " --prompt '14 tw' --max-new 10 --temperature 0 --json");
    EXPECT_EQ(ran.code, 0) << ran.err;
    return nlohmann::json::parse(ran.out)["text"].get<std::string>();
  };
  const std::string written = text_by(folder);
  EXPECT_EQ(written.size(), 10U);
  EXPECT_EQ(written, text_by(s.path("model")));

  const Ran chat = egret_command("chat --model " + folder + " --temperature 0 --max-new 6 --json",
                                 "printf '7 twice\\n' |");
  ASSERT_EQ(chat.code, 0) << chat.err;
  const auto answer = nlohmann::json::parse(chat.out);
  EXPECT_EQ(answer["prompt_tokens"], 8) << "the line and its end";
  EXPECT_EQ(answer["tokens"], 6);

  serve::Server server(models::LanguageModel::load(folder), Tokenizer::load(folder),
                       {.model_name = "text"});
  const test::HttpResponse served =
      test::http(server.port(), "POST", "/v1/completions",
                 R"({"prompt":"14 tw","max_tokens":10,"temperature":0})");
  ASSERT_EQ(served.status, 200) << served.body;
  EXPECT_EQ(nlohmann::json::parse(served.body)["choices"][0]["text"], written);

  // Nothing is written over, which is told before a step.
  const Ran again = s.train("other", "--steps 30 --export " + folder);
  EXPECT_EQ(again.code, 1);
  expect_contains(again.err, "is there already and not empty");
  EXPECT_FALSE(std::filesystem::exists(s.folder / "other"));
}

// Bytes beyond ASCII, no line end, one table for both ends, and what training saved last is read.
TEST(ExportText, WritesAnyAlphabetAndTheBestCheckpoint) {
  std::string text;
  for (int i = 0; i < 500; ++i)
    text += i % 3 == 0 ? "a\xc3\xa9" : i % 3 == 1 ? "\xe2\x82\xac" : " 0";
  const SmallText s(text);
  const std::string folder = s.path("exported");
  const Ran trained = s.train("model", "--steps 20 --evaluate-every 5 --lr 0.05 --best " +
                                           s.path("best") + " --export " + folder);
  ASSERT_EQ(trained.code, 0) << trained.err;
  models::TextModel best = models::load_text_model(s.folder / "best");
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const std::string some = text.substr(0, 11);
  EXPECT_EQ(tokenizer.encode(some), ids_of(best, some));
  EXPECT_EQ(tokenizer.decode(ids_of(best, some)), some);
  EXPECT_EQ(tokenizer.encode("zz"), std::vector<int>()) << "no characters of the alphabet";
  const auto numbers = best.codec.encode(some);
  const auto want = best.gpt(tensor(numbers).reshape({1, -1})).to_vector();
  const auto got = models::LanguageModel::load(folder).logits(ids_of(best, some)).to_vector();
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-5) << i;

  Generator g(1);
  best.shape.tied = true;
  best.gpt = models::Gpt(best.shape, g);
  models::export_text_model(best, s.folder / "tied");
  const auto tied = best.gpt(tensor(numbers).reshape({1, -1})).to_vector();
  const auto of_tied = models::LanguageModel::load(s.folder / "tied").logits(ids_of(best, some));
  const auto got_tied = of_tied.to_vector();
  for (std::size_t i = 0; i < tied.size(); ++i)
    ASSERT_NEAR(got_tied[i], tied[i], 1e-5) << i;
}

} // namespace
} // namespace egret
