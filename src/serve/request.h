// The bodies of requests, read and checked. Unknown fields are refused, and known ones with values
// that change the answer in a way that is not there.
#pragma once

#include "egret/chat_template.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace egret::serve {

using Messages = std::vector<ChatMessage>;

/// A text to be continued: as text, as ids, or as a conversation.
using Prompt = std::variant<std::string, std::vector<int>, Messages>;

/// What a body of /v1/chat/completions or /v1/completions asks for.
struct CompletionBody {
  std::string model; ///< may be empty
  Prompt prompt;
  std::optional<std::int64_t> max_tokens, top_k;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  double presence_penalty = 0, frequency_penalty = 0;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  bool stream = false, include_usage = false;
};

/// What a body of /tokenize asks for.
struct TokenizeBody {
  std::string model;
  Prompt prompt; ///< never ids
  bool add_special = true;
};

// Refusal with status 400 that names the field: for what is not a JSON object, nests deeper than 64
// levels or is not UTF-8, for missing, unknown and mistyped fields and for values out of range.
CompletionBody read_chat_body(std::string_view json);
CompletionBody read_completion_body(std::string_view json);
TokenizeBody read_tokenize_body(std::string_view json);

} // namespace egret::serve
