// Small language models with a tokenizer, and samples that they can learn.
#pragma once

#include "support/files.h"
#include "support/language_models.h"
#include "support/small_tokenizer.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace egret::test {

/// A model of tests/golden/language with the small tokenizer and its chat template.
inline void write_model_to_finetune(const std::filesystem::path& folder, const char* name) {
  std::filesystem::create_directories(folder);
  write_served_folder(folder, golden_language(name));
}

inline std::string message_line(const std::string& question, const std::string& answer) {
  return nlohmann::json{{"messages",
                         {{{"role", "user"}, {"content", question}},
                          {{"role", "assistant"}, {"content", answer}}}}}
             .dump() +
         "\n";
}

/// Conversations whose answers turn two words round.
inline std::string small_conversations() {
  const std::vector<std::string> words = {"cat", "dog", "sun", "moon", "tree"};
  std::string lines;
  for (const std::string& a : words)
    for (const std::string& b : words)
      lines += message_line(a + " and " + b, b + " then " + a);
  return lines;
}

} // namespace egret::test
