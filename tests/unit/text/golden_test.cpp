// What Hugging Face's tokenizers and Jinja made of the same inputs (tests/golden/make_text.py).
#include "egret/chat_template.h"
#include "egret/error.h"
#include "egret/tokenizer.h"
#include "support/files.h"
#include "text/utf8.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace egret {
namespace {

const nlohmann::json& golden() {
  static const nlohmann::json kFile = nlohmann::json::parse(
      test::read_file(std::string(EGRET_TEST_SOURCE_DIR) + "/golden/text.json"));
  return kFile;
}

TEST(GoldenText, IdsAndTextsEqualThoseOfTokenizers) {
  for (const auto& one : golden()["tokenizers"]) {
    const auto name = one["name"].get<std::string>();
    const Tokenizer tokenizer = Tokenizer::parse(one["tokenizer"].dump(), "", name);
    for (const auto& c : one["cases"]) {
      const auto text = c["text"].get<std::string>();
      const auto ids = tokenizer.encode(text);
      EXPECT_EQ(ids, c["ids"].get<std::vector<std::int32_t>>()) << name << ": " << text;
      EXPECT_EQ(tokenizer.decode(ids, false), c["back"].get<std::string>()) << name << ": " << text;
      EXPECT_EQ(tokenizer.decode(ids), c["plain"].get<std::string>()) << name << ": " << text;
    }
  }
}

TEST(GoldenText, StreamsGiveTheTextInValidParts) {
  for (const auto& one : golden()["tokenizers"]) {
    const Tokenizer tokenizer = Tokenizer::parse(one["tokenizer"].dump());
    for (const auto& c : one["cases"]) {
      StreamingDetokenizer stream(tokenizer, false);
      for (int round = 0; round < 2; ++round) { // finish() begins a new text
        std::string text;
        for (const std::int32_t id : c["ids"].get<std::vector<std::int32_t>>()) {
          const std::string part = stream.push(id);
          EXPECT_TRUE(text::is_utf8(part));
          text += part;
        }
        EXPECT_EQ(text + stream.finish(), c["back"].get<std::string>()) << one["name"];
      }
    }
  }
}

TEST(GoldenText, TemplatesEqualJinja) {
  for (const auto& c : golden()["templates"]) {
    const auto text = c["template"].get<std::string>();
    if (c["text"].is_null())
      EXPECT_THROW(ChatTemplate::parse(text).render("{}"), Error) << text;
    else
      EXPECT_EQ(ChatTemplate::parse(text).render("{}"), c["text"].get<std::string>()) << text;
  }
}

} // namespace
} // namespace egret
