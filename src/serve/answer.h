// The JSON of answers and the events of streamed ones.
#pragma once

#include "serve/engine.h"

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace egret::serve {

/// How the text of a job is told.
struct AnswerForm {
  bool chat = true; ///< as chat.completion, else as text_completion
  bool stream = false;
  bool include_usage = false; ///< an event of its own, before the last
  bool logprobs = false;
  std::size_t choices = 1;
  std::string id, model;
  std::int64_t created = 0; ///< seconds since 1970
};

/// A whole text of a job.
struct ChoiceAnswer {
  std::string text;
  const char* finish = nullptr;
  std::vector<TokenNews> tokens;
  std::vector<ToolCall> calls;

  void add(Part part);
};

/// One line; what is not UTF-8 becomes U+FFFD.
std::string json_text(const nlohmann::ordered_json& json);

/// The body of an answer that is not streamed.
std::string whole_answer(const AnswerForm& form, const std::vector<ChoiceAnswer>& choices,
                         const Usage& usage);

/// The body of an answer with embeddings of texts that have so many tokens in all.
std::string embeddings_answer(const std::string& model, const Embeddings& embeddings, bool base64,
                              std::size_t tokens);

// Server-sent events (WHATWG HTML, 9.2), each "data: JSON" and an empty line.
std::string opening_events(const AnswerForm& form); ///< before all others; may be empty
/// A part of a text, with the reason of its end; after the last of all the usage, where it is asked
/// for, and [DONE].
std::string part_events(const AnswerForm& form, const Part& part);
/// The end of a stream that fails: an error as body_of(Refusal) has it.
std::string error_event(const std::string& error_body);

} // namespace egret::serve
