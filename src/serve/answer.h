// The JSON of answers and the events of streamed ones.
#pragma once

#include "serve/engine.h"

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace egret::serve {

/// How the text of a job is told.
struct AnswerForm {
  bool chat = true; ///< as chat.completion, else as text_completion
  bool stream = false;
  bool include_usage = false; ///< an event of its own, before the last
  std::string id, model;
  std::int64_t created = 0; ///< seconds since 1970
};

/// One line; what is not UTF-8 becomes U+FFFD.
std::string json_text(const nlohmann::ordered_json& json);

/// The body of an answer that is not streamed.
std::string whole_answer(const AnswerForm& form, const std::string& text, const char* finish,
                         const Usage& usage);

// Server-sent events (WHATWG HTML, 9.2), each "data: JSON" and an empty line.
std::string opening_events(const AnswerForm& form); ///< before all others; may be empty
/// A part of the text, with the reason of its end where it is the last: then the usage, where it is
/// asked for, and [DONE] follow.
std::string part_events(const AnswerForm& form, const Part& part);
/// The end of a stream that fails: an error as body_of(Refusal) has it.
std::string error_event(const std::string& error_body);

} // namespace egret::serve
