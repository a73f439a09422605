// The bodies of requests, read and checked. Unknown fields are refused, and known ones with values
// that change the answer in a way that is not there.
#pragma once

#include "egret/chat_template.h"
#include "serve/tools.h"

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

/// What an answer must be, beside text.
struct AnswerFormat {
  enum class Kind { Text, JsonObject, Schema } kind = Kind::Text;
  std::string schema; ///< JSON
};

/// Whether tools are called.
enum class ToolChoice { None, Auto, Required };

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
  std::size_t choices = 1;                  ///< texts that are asked for
  std::optional<std::int64_t> top_logprobs; ///< of so many tokens at each place
  AnswerFormat format;
  std::vector<Tool> tools; ///< that may be called: all, or the one that the request names
  bool one_call = false;   ///< of tools, at the most
  std::string tools_json;  ///< as templates have them; empty: none
  ToolChoice tool_choice = ToolChoice::None;
};

/// What a body of /tokenize asks for.
struct TokenizeBody {
  std::string model;
  Prompt prompt; ///< never ids
  bool add_special = true;
};

/// What a body of /v1/embeddings asks for.
struct EmbeddingBody {
  std::string model;
  std::vector<Prompt> inputs; ///< never conversations
  bool base64 = false;        ///< of little-endian floats, instead of numbers
};

// Refusal with status 400 that names the field: for what is not a JSON object, nests deeper than 64
// levels or is not UTF-8, for missing, unknown and mistyped fields and for values out of range.
CompletionBody read_chat_body(std::string_view json);
CompletionBody read_completion_body(std::string_view json);
TokenizeBody read_tokenize_body(std::string_view json);
EmbeddingBody read_embedding_body(std::string_view json);

} // namespace egret::serve
