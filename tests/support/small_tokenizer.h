// A tokenizer of as many tokens as the small language models have, and a chat template.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace egret::test {

/// 64 tokens: 8 special ones, then single characters (Ġ is a space in the alphabet of bytes).
inline nlohmann::json small_tokenizer() {
  const std::vector<std::string> special = {"<pad>",      "<s>",           "</s>",      "<|user|>",
                                            "<|system|>", "<|assistant|>", "<|other|>", "<|end|>"};
  nlohmann::json added = nlohmann::json::array(), vocabulary;
  int id = 0;
  for (const std::string& text : special) {
    added.push_back({{"id", id},
                     {"content", text},
                     {"special", true},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false}});
    vocabulary[text] = id++;
  }
  vocabulary["\u0120"] = id++;
  for (const char c : std::string("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTU.,?!-0123"))
    if (id < 64)
      vocabulary[std::string(1, c)] = id++;
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
}

inline constexpr const char* kSmallTemplate =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";

} // namespace egret::test
