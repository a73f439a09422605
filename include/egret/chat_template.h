// Chat templates: the Jinja templates of published models, which turn a conversation into the text
// that a model continues.
//
//   ChatTemplate chat = ChatTemplate::parse(*tokenizer.chat_template());
//   std::string text = chat.render(messages, tokenizer, {.generation_prompt = true});
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace egret {

class Tokenizer;

struct ChatMessage {
  std::string role = {};      ///< "system", "user", "assistant" ...
  std::string content = {};   ///< UTF-8
  std::string more_json = {}; ///< an object of further fields (tool_calls ...); empty: none
};

/// What a template may spend; beyond it rendering ends with Error(Value).
struct TemplateLimits {
  std::uint64_t steps = 20'000'000;        ///< expressions, items and 16-byte parts of texts
  std::uint64_t output_bytes = 64U << 20U; ///< also of each intermediate text
};

struct ChatOptions {
  bool generation_prompt = false;  ///< ends with the start of the answer
  std::string tools_json = {};     ///< an array of tools; empty: none
  std::string variables_json = {}; ///< an object of further variables; empty: none
  /// For strftime_now: seconds since 1970 (UTC); empty: the clock.
  std::optional<std::int64_t> now = {};
  TemplateLimits limits = {};
};

/// A parsed template. Any number of threads may render one at once.
///
/// The language is Jinja as `transformers` sets it up (blocks trimmed on both sides, loop controls,
/// `generation`): for, if, set, macro, call, filter, with, raw; filters, tests and methods that
/// templates of published models use (docs/text.md lists them). What is not there is refused with
/// its line: Error(Parse) for the grammar, Error(Unsupported) for a name that is not known when the
/// template is parsed. Mistakes while rendering are Error(Value): an undefined variable's
/// attribute, a limit, raise_exception() with its message.
class ChatTemplate {
public:
  /// `name` starts messages, as in "chat template: line 3: ...".
  static ChatTemplate parse(std::string_view text, const std::string& name = "chat template");

  /// With a JSON object of variables. What is not JSON is Error(Parse).
  std::string render(std::string_view variables_json, const TemplateLimits& limits = {},
                     std::optional<std::int64_t> now = std::nullopt) const;
  /// With messages, the tokenizer's special tokens (bos_token ...) and the options, under the names
  /// that published templates use: messages, tools, add_generation_prompt.
  std::string render(std::span<const ChatMessage> messages, const Tokenizer& tokenizer,
                     const ChatOptions& options = {}) const;

private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

} // namespace egret
