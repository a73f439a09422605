#include "egret/tokenizer.h"
#include "support/files.h"
#include "text/regex.h"
#include "text/utf8.h"

#include <atomic>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <thread>

namespace egret {
namespace {

using Ids = std::vector<std::int32_t>;

/// Tokens of bytes by fallback, and "ab".
std::string fallback_file() {
  std::string vocab = R"("<unk>":0,"a":1,"b":2,"ab":3)";
  for (int byte = 0; byte < 256; ++byte)
    vocab += fmt::format(",\"<0x{:02X}>\":{}", byte, byte + 4);
  return R"({"added_tokens":[{"id":300,"content":"<|end|>","special":true}],
    "decoder":{"type":"Sequence","decoders":[{"type":"ByteFallback"},{"type":"Fuse"}]},
    "model":{"type":"BPE","byte_fallback":true,"unk_token":"<unk>","merges":["a b"],"vocab":{)" +
         vocab + "}}}";
}

TEST(Tokenizer, BytesStandInForWhatTheVocabularyLacks) {
  const Tokenizer t = Tokenizer::parse(fallback_file());
  EXPECT_EQ(t.encode("abé"), (Ids{3, 4 + 0xc3, 4 + 0xa9}));
  EXPECT_EQ(t.decode(t.encode("abé")), "abé");
  EXPECT_EQ(t.size(), 261U);
}

TEST(Tokenizer, InvalidBytesBecomeOneReplacementForEachMaximalPart) {
  const Tokenizer t = Tokenizer::parse(fallback_file());
  EXPECT_EQ(t.decode(t.encode("a\xe2\x82z\xff\xfe\xf0\x9f\x98")), "a\uFFFDz\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(text::replace_invalid_utf8("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD"); // a surrogate
  EXPECT_EQ(text::replace_invalid_utf8("\xc0\x80"), "\uFFFD\uFFFD");           // overlong
}

TEST(Tokenizer, SpecialTokensAreFoundAndLeftOut) {
  const Tokenizer t =
      Tokenizer::parse(fallback_file(), R"({"eos_token":{"content":"<|end|>"},"bos_token":null,
    "chat_template":[{"name":"default","template":"A"},{"name":"tool_use","template":"B"}]})");
  const Ids ids = t.encode("ab<|end|>b");
  EXPECT_EQ(ids, (Ids{3, 260, 2}));
  EXPECT_EQ(t.decode(ids), "abb");
  EXPECT_EQ(t.decode(ids, false), "ab<|end|>b");
  EXPECT_TRUE(t.is_special(260));
  EXPECT_EQ(t.special_id("eos_token"), 260);
  EXPECT_EQ(t.special_token("bos_token"), std::nullopt);
  EXPECT_EQ(t.chat_template("tool_use"), "B");
  EXPECT_EQ(t.chat_template("other"), std::nullopt);
  EXPECT_EQ(t.id_of("ab"), 3);
  EXPECT_EQ(t.token_of(3), "ab");
  EXPECT_EQ(t.token_of(999), std::nullopt);
  EXPECT_EQ(t.decode(Ids{3, 999, -5, 2}), "abb"); // ids without a token
}

TEST(Tokenizer, AStreamHoldsHalfACharacter) {
  const Tokenizer t = Tokenizer::parse(fallback_file());
  StreamingDetokenizer stream(t);
  EXPECT_EQ(stream.push(4 + 0xe2), "");
  EXPECT_EQ(stream.push(4 + 0x82), "");
  EXPECT_EQ(stream.push(4 + 0xac), "€");
  EXPECT_EQ(stream.push(4 + 0xe2), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(Tokenizer, LongPiecesMergeAsShortOnesDo) {
  // Merges of rank order that a heap and a search of few pairs must both follow.
  const Tokenizer t = Tokenizer::parse(
      R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"aa":2,"ab":3,"aab":4,"aaaa":5},
    "merges":["a a","a b","a ab","aa aa"]},"decoder":{"type":"Fuse"}})");
  const std::string part = "aaab";
  const Ids once = t.encode(part);
  EXPECT_EQ(once, (Ids{2, 3}));
  std::string text;
  Ids want;
  for (int i = 0; i < 5000; ++i) {
    text += part;
    want.insert(want.end(), once.begin(), once.end());
  }
  EXPECT_EQ(t.encode(text), want);
  EXPECT_EQ(t.decode(want), text);
}

TEST(Tokenizer, ThreadsShareOne) {
  const Tokenizer t = Tokenizer::parse(fallback_file());
  const Ids want = t.encode("abab é <|end|>");
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int run = 0; run < 200; ++run)
        wrong += t.encode("abab é <|end|>") == want ? 0 : 1;
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Tokenizer, AFolderHasTheConfigurationAndTheTemplate) {
  test::TempFolder folder;
  test::write_file(folder / "tokenizer.json", fallback_file());
  test::write_file(folder / "tokenizer_config.json", R"({"bos_token":"a","chat_template":"old"})");
  test::write_file(folder / "chat_template.jinja", "new");
  const Tokenizer t = Tokenizer::load(folder.path());
  EXPECT_EQ(t.special_id("bos_token"), 1);
  EXPECT_EQ(t.chat_template(), "new");
}

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const text::Regex regex(pattern, "here");
  text::RegexScratch scratch;
  std::vector<std::string> out;
  text::each_match(regex, text, scratch,
                   [&](text::Range m) { out.emplace_back(text.substr(m.begin, m.end - m.begin)); });
  return out;
}

TEST(Regex, RubysSyntax) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(matches(R"(\s+)", "a\u180e b\u0085\u2003c"),
            (Texts{" ", "\u0085\u2003"})); // U+180E is no space
  EXPECT_EQ(matches(R"([^\S\n]+)", "a \n\tb"), (Texts{" ", "\t"}));
  EXPECT_EQ(matches(R"(\d{2}+)", "12345"), (Texts{"1234"})); // repeats; it is not possessive
  EXPECT_EQ(matches(R"(a{,2}b)", "aaab"), (Texts{"aab"}));
  EXPECT_EQ(matches(R"((?m:a.b))", "a\nb"), (Texts{"a\nb"}));
  EXPECT_EQ(matches(R"(^x)", "x\nx"), (Texts{"x", "x"}));
  EXPECT_EQ(matches(R"(\h+|\u00e9)", "fgé"), (Texts{"f", "é"}));
  EXPECT_EQ(matches("x*", "axb"), (Texts{"", "x", ""}));
}

} // namespace
} // namespace egret
