// Laws of byte-level tokenizers on random bytes: the text comes back, streams give the same, and
// cutting a text where it is split anyway changes no id.
#include "egret/tokenizer.h"
#include "text/bytes_alphabet.h"
#include "text/utf8.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>

namespace egret {
namespace {

/// All bytes, and random merges of tokens that are there already.
Tokenizer random_tokenizer(std::mt19937& random, bool add_prefix) {
  nlohmann::json vocab = nlohmann::json::object(), merges = nlohmann::json::array();
  std::vector<std::string> tokens;
  auto add = [&](const std::string& token) {
    if (vocab.contains(token))
      return false;
    vocab[token] = tokens.size();
    tokens.push_back(token);
    return true;
  };
  for (int byte = 0; byte < 256; ++byte)
    add(text::to_alphabet(std::string(1, static_cast<char>(byte))));
  for (int i = 0; i < 600; ++i) {
    const std::string a = tokens[random() % tokens.size()],
                      b = tokens[random() % (i < 300 ? 256 : tokens.size())];
    if (a.size() + b.size() < 16 && add(a + b))
      merges.push_back({a, b});
  }
  const nlohmann::json file = {
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", add_prefix}}},
      {"decoder", {{"type", "ByteLevel"}}}};
  return Tokenizer::parse(file.dump());
}

std::string random_text(std::mt19937& random) {
  std::string out;
  const std::size_t length = random() % 200;
  for (std::size_t i = 0; i < length; ++i)
    switch (random() % 4) {
    case 0:
      out += static_cast<char>(random() % 256);
      break;
    case 1:
      out += static_cast<char>('a' + random() % 4);
      break;
    case 2:
      out += " \n'0"[random() % 4];
      break;
    default: {
      char32_t c = random() % 0x110000;
      text::append_char(out, c >= 0xd800 && c < 0xe000 ? U'x' : c);
    }
    }
  return out;
}

TEST(ByteLevel, TextsComeBack) {
  std::mt19937 random(7);
  for (int round = 0; round < 10; ++round) {
    const Tokenizer t = random_tokenizer(random, false);
    for (int i = 0; i < 200; ++i) {
      const std::string bytes = random_text(random), text = text::replace_invalid_utf8(bytes);
      const auto ids = t.encode(bytes);
      ASSERT_EQ(t.decode(ids), text);
      ASSERT_EQ(t.encode(text), ids);
      StreamingDetokenizer stream(t);
      std::string streamed;
      for (const std::int32_t id : ids) {
        const std::string part = stream.push(id);
        ASSERT_TRUE(text::is_utf8(part));
        streamed += part;
      }
      ASSERT_EQ(streamed + stream.finish(), text);
    }
  }
}

TEST(ByteLevel, StreamsOfAnyIdsEqualTheWhole) {
  std::mt19937 random(8);
  const Tokenizer t = random_tokenizer(random, true);
  for (int i = 0; i < 1000; ++i) {
    std::vector<std::int32_t> ids;
    for (std::size_t n = random() % 40; n > 0; --n)
      ids.push_back(static_cast<std::int32_t>(random() % (t.size() + 3)));
    StreamingDetokenizer stream(t);
    std::string streamed;
    for (const std::int32_t id : ids)
      streamed += stream.push(id);
    ASSERT_EQ(streamed + stream.finish(), t.decode(ids));
  }
}

TEST(ByteLevel, WordsAreIndependent) {
  std::mt19937 random(9);
  const Tokenizer t = random_tokenizer(random, false);
  for (int i = 0; i < 500; ++i) {
    std::string text;
    std::vector<std::int32_t> want;
    for (int word = 0; word < 8; ++word) {
      std::string one = " ";
      for (std::size_t n = 1 + random() % 40; n > 0; --n)
        one += static_cast<char>('a' + random() % 6);
      text += one;
      const auto ids = t.encode(one);
      want.insert(want.end(), ids.begin(), ids.end());
    }
    ASSERT_EQ(t.encode(text), want);
  }
}

} // namespace
} // namespace egret
