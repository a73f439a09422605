// Calls of tools in a model's text, in the forms that chat templates teach.
#pragma once

#include "serve/stop_strings.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace egret::serve {

enum class ToolForm {
  None,
  Hermes, ///< <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen 2.5 and 3
  Llama   ///< {"name": ..., "parameters": {...}} and nothing else: Llama 3.1 and later
};

/// By what a chat template says of them.
ToolForm tool_form_of(std::string_view chat_template);

/// A function that a model may call.
struct Tool {
  std::string name;
  std::string parameters; ///< a JSON schema
};

/// What a call in a form is made of, for Grammar::of_schema().
struct CallText {
  std::string before, schema, after;
};
CallText call_text(ToolForm form, const std::vector<Tool>& tools);

struct ToolCall {
  std::string id, name;
  std::string arguments; ///< JSON
};

/// Tells calls from other text as it comes.
class ToolCallReader {
public:
  /// `names`: the tools that may be called; empty: any.
  explicit ToolCallReader(ToolForm form, std::vector<std::string> names = {})
      : form_(form), names_(std::move(names)),
        content_(form == ToolForm::Hermes ? std::vector<std::string>{"<tool_call>"}
                                          : std::vector<std::string>{}) {}

  /// More text; the part that is certain to be no call.
  std::string push(std::string_view text);

  struct Rest {
    std::string text; ///< what is no call after all
    std::vector<ToolCall> calls;
  };
  Rest finish();

private:
  ToolForm form_;
  std::vector<std::string> names_;
  StopStrings content_;
  std::string all_;
  std::size_t passed_ = 0;                                    ///< bytes of all_ that push() gave
  enum class Start { Open, Call, Text } start_ = Start::Open; ///< of Llama's form
};

} // namespace egret::serve
