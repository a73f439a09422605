// Tokenizers inside GGUF files give the ids of the libraries that their vocabularies come from
// (tests/golden/make_gguf_tokenizers.py).
#include "egret/gguf_tokenizer.h"
#include "support/files.h"
#include "support/golden.h"

#include <gtest/gtest.h>

namespace egret::models {
namespace {

io::GgufMetadata metadata_of(const nlohmann::json& golden) {
  io::GgufMetadata metadata;
  for (const auto& [key, value] : golden.items()) {
    if (!key.starts_with("tokenizer."))
      continue;
    if (value.is_string())
      metadata[key] = value.get<std::string>();
    else if (value.is_boolean())
      metadata[key] = value.get<bool>();
    else if (value.is_number_integer())
      metadata[key] = value.get<std::int64_t>();
    else if (value[0].is_string())
      metadata[key] = value.get<std::vector<std::string>>();
    else if (value[0].is_number_integer() && key.ends_with("token_type"))
      metadata[key] = value.get<std::vector<std::int64_t>>();
    else
      metadata[key] = value.get<std::vector<double>>();
  }
  return metadata;
}

class GgufTokenizerTest : public ::testing::Test {
protected:
  io::GgufMetadata scored_ = metadata_of(test::golden("gguf/tokenizers.json")[0]);
  io::GgufMetadata merged_ = metadata_of(test::golden("gguf/tokenizers.json")[1]);

  static void expect_refused(ErrorKind kind, const io::GgufMetadata& metadata,
                             std::initializer_list<const char*> parts) {
    const std::string message =
        test::error_of(kind, [&] { (void)gguf_tokenizer(metadata, "a.gguf"); });
    EXPECT_TRUE(message.starts_with("a.gguf: ")) << message;
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << message << "\n  lacks: " << part;
  }
};

TEST_F(GgufTokenizerTest, IdsAreThoseOfTheLibraries) {
  for (const nlohmann::json& golden : test::golden("gguf/tokenizers.json")) {
    const Tokenizer tokenizer = gguf_tokenizer(metadata_of(golden));
    for (const nlohmann::json& one : golden["cases"]) {
      const std::string text = one["text"];
      const auto ids = tokenizer.encode(text);
      EXPECT_EQ(ids, one["ids"].get<std::vector<std::int32_t>>())
          << golden["tokenizer.ggml.model"] << ": " << text;
      const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
      if (!has("</s>") && !has("<s>") && !has("\u2581")) {
        EXPECT_EQ(tokenizer.decode(ids), text) << golden["tokenizer.ggml.model"];
      }
    }
  }
}

TEST_F(GgufTokenizerTest, TokensOfTheEndsAndTheTemplateAreKnown) {
  scored_["tokenizer.chat_template"] = std::string("{{ messages }}");
  scored_["tokenizer.ggml.add_eos_token"] = true;
  const Tokenizer tokenizer = gguf_tokenizer(scored_);
  EXPECT_EQ(tokenizer.special_token("eos_token"), "</s>");
  EXPECT_EQ(tokenizer.special_token("bos_token"), "<s>");
  EXPECT_EQ(tokenizer.chat_template(), "{{ messages }}");
  const auto ids = tokenizer.encode("the cat");
  EXPECT_EQ(ids.front(), tokenizer.id_of("<s>"));
  EXPECT_EQ(ids.back(), tokenizer.id_of("</s>"));
  EXPECT_EQ(tokenizer.decode(ids), "the cat");
  scored_["tokenizer.ggml.add_bos_token"] = false;
  scored_["tokenizer.ggml.add_space_prefix"] = false;
  const Tokenizer bare = gguf_tokenizer(scored_);
  EXPECT_EQ(bare.encode("the").front(), bare.id_of("the").value_or(bare.encode("the").front()));
  EXPECT_EQ(bare.decode(bare.encode(" the cat")), " the cat");
}

TEST_F(GgufTokenizerTest, WhatIsMissingOrUnknownIsNamed) {
  const auto without = [](io::GgufMetadata metadata, const char* key) {
    metadata.erase(key);
    return metadata;
  };
  for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.tokens", "tokenizer.ggml.scores"})
    expect_refused(ErrorKind::File, without(scored_, key), {key, "is missing"});
  for (const char* key : {"tokenizer.ggml.pre", "tokenizer.ggml.merges"})
    expect_refused(ErrorKind::File, without(merged_, key), {key, "is missing"});
  io::GgufMetadata changed = merged_;
  changed["tokenizer.ggml.pre"] = std::string("unknown");
  expect_refused(ErrorKind::Unsupported, changed, {"'unknown'", "llama-bpe", "qwen2"});
  changed = merged_;
  changed["tokenizer.ggml.model"] = std::string("t5");
  expect_refused(ErrorKind::Unsupported, changed, {"'t5'", "gpt2, llama"});
  changed["tokenizer.ggml.model"] = true;
  expect_refused(ErrorKind::File, changed, {"'tokenizer.ggml.model' is of another type"});
  changed = merged_;
  changed["tokenizer.ggml.token_type"] = std::vector<std::int64_t>{1};
  expect_refused(ErrorKind::File, changed, {"'tokenizer.ggml.token_type' has 1 elements"});
  changed = merged_;
  changed["tokenizer.ggml.bos_token_id"] = std::int64_t(100000);
  changed["tokenizer.ggml.add_bos_token"] = true;
  expect_refused(ErrorKind::File, changed, {"'tokenizer.ggml.bos_token_id' is 100000"});
  changed = merged_;
  changed["tokenizer.ggml.tokens"] = std::vector<std::string>{"a", "a"};
  changed.erase("tokenizer.ggml.token_type");
  expect_refused(ErrorKind::File, changed, {"has 'a' twice"});
  changed["tokenizer.ggml.tokens"] = std::vector<std::string>{"a\xff"};
  expect_refused(ErrorKind::File, changed, {"not UTF-8"});
  changed = scored_;
  changed["tokenizer.ggml.scores"] = std::vector<double>{0.5};
  expect_refused(ErrorKind::File, changed, {"'tokenizer.ggml.scores' has 1 elements"});
}

} // namespace
} // namespace egret::models
