// egret chat: a conversation with a language model, line by line.
#include "chat_command.h"

#include "console.h"
#include "effort_options.h"
#include "interrupts.h"
#include "language.h"
#include "number_option.h"

#include "egret/chat_template.h"
#include "egret/error.h"
#include "support/fail.h"
#include "support/printable.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

struct ChatCommandOptions {
  LanguageOptions language;
  std::string system;
};

class Conversation {
public:
  /// Everything that may be refused is refused before weights are read.
  explicit Conversation(const ChatCommandOptions& o)
      : options_(o.language), tokenizer_(tokenizer_of(options_)), template_(template_of()) {
    if (!o.system.empty())
      messages_.push_back({"system", o.system});
    start_ = messages_.size();
    const std::size_t least = prompt_with("?").size();
    if (options_.context > 0)
      require_fits(least, options_.context);
    const auto grammar = grammar_of(options_, tokenizer_);
    model_.emplace(load_language_model(options_));
    generation_ = generation_of(options_, *model_, &tokenizer_);
    generation_.grammar = grammar;
    if (!options_.max_new)
      generation_.max_new = model_->context();
  }

  void reset() { messages_.resize(start_); }

  void answer(const std::string& line) {
    const std::vector<int> prompt = prompt_with(line);
    require_fits(prompt.size(), model_->context());
    StreamingDetokenizer stream(tokenizer_);
    std::string text;
    const auto add = [&](const std::string& part) {
      text += part;
      if (!options_.json)
        show(part);
    };
    const Answer answer =
        write_on(*model_, prompt, generation_, [&](int token) { add(stream.push(token)); });
    add(stream.finish());
    messages_.push_back({"user", line});
    messages_.push_back({"assistant", text});
    show(options_.json ? json_of(answer, text) : "\n");
    if (options_.stats)
      answer.log_stats();
    if (!options_.json)
      say_why(answer.generated.reason);
  }

private:
  ChatTemplate template_of() const {
    const auto text = tokenizer_.chat_template();
    const std::string& where = options_.tokenizer.empty() ? options_.model : options_.tokenizer;
    if (!text)
      fail(ErrorKind::File,
           "{}: there is no chat template, neither in tokenizer_config.json nor as "
           "chat_template.jinja; egret generate continues texts without one",
           where);
    return ChatTemplate::parse(*text, where + ": chat template");
  }

  /// The ids of the conversation with one more line, up to where the answer begins.
  std::vector<int> prompt_with(const std::string& line) const {
    std::vector<ChatMessage> messages = messages_;
    messages.push_back({"user", line});
    const std::string text = template_.render(messages, tokenizer_, {.generation_prompt = true});
    return tokenizer_.encode(text, false); // the template has written the special tokens
  }

  static std::string json_of(const Answer& answer, const std::string& text) {
    return nlohmann::ordered_json{{"role", "assistant"},
                                  {"content", text},
                                  {"prompt_tokens", answer.prompt},
                                  {"tokens", answer.generated.tokens.size()},
                                  {"reason", name_of(answer.generated.reason)}}
               .dump() +
           "\n";
  }

  static void say_why(models::StopReason reason) {
    if (reason == models::StopReason::Caller)
      log("(stopped)");
    else if (reason == models::StopReason::Context)
      log("(the context is full; /reset begins a new conversation)");
    else if (reason == models::StopReason::Length)
      log("(ended by --max-new)");
  }

  LanguageOptions options_;
  Tokenizer tokenizer_;
  ChatTemplate template_;
  std::vector<ChatMessage> messages_;
  std::size_t start_ = 0; ///< messages that a reset leaves
  std::optional<models::LanguageModel> model_;
  models::GenerateOptions generation_;
};

void chat(const ChatCommandOptions& options) {
  constexpr std::size_t kMostLine = 1 << 24;
  Conversation conversation(options);
  const bool terminal = stdin_is_terminal();
  if (terminal)
    log("/reset begins a new conversation; Ctrl-C stops an answer, Ctrl-D or /exit ends.");
  const Interrupts interrupts(Interrupts::Reads::GoOn);
  const auto prompt = [&] {
    if (terminal && stderr_is_terminal())
      fmt::print(stderr, "> ");
  };
  std::string line;
  for (prompt(); next_line(line, kMostLine); prompt()) {
    if (line.ends_with('\r'))
      line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos)
      continue;
    if (line == "/exit")
      return;
    if (line == "/reset") {
      conversation.reset();
      continue;
    }
    if (!terminal) {
      conversation.answer(line);
      continue;
    }
    try { // a person may try again
      conversation.answer(line);
    } catch (const Error& error) {
      log_line(terminal_text(error.what()));
    }
  }
}

} // namespace

void add_chat_command(CLI::App& app) {
  auto options = std::make_shared<ChatCommandOptions>();
  LanguageOptions& language = options->language;
  auto* command = app.add_subcommand("chat", "Talk with a language model");
  command->footer("Each line of standard input is a message. /reset begins a new conversation,\n"
                  "/exit or Ctrl-D ends, Ctrl-C stops an answer. Sampling is as the folder's\n"
                  "generation_config.json proposes, else the likeliest token.");
  command->add_option("--model", language.model, "A folder, or a GGUF file")->required();
  command->add_option("--system", options->system, "A message that stands before all others");
  command
      ->add_option("--max-new", language.max_new,
                   "Most tokens of an answer (default: what the context holds)")
      ->check(whole_within(1, 100000000));
  add_sampling_options(*command, language);
  add_language_options(*command, language);
  command->add_flag("--json", language.json, "One JSON object an answer");
  add_computation(*command, [options] { chat(*options); });
}

} // namespace egret::tool
