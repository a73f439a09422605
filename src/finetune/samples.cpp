#include "egret/chat_template.h"
#include "egret/finetune.h"
#include "support/fail.h"
#include "support/printable.h"
#include "support/read_text.h"
#include "text/json_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace egret::finetune {

namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 36; // a corpus, bounded by memory

/// A text with the parts of it that are to be learnt, as bytes [begin, end).
struct Marked {
  std::string text;
  std::vector<std::pair<std::size_t, std::size_t>> learnt;
};

class Reader {
public:
  Reader(const std::filesystem::path& data, const Tokenizer& tokenizer, std::int64_t length,
         std::int64_t vocabulary)
      : path_(data.string()), tokenizer_(tokenizer), length_(length), vocabulary_(vocabulary) {}

  std::vector<Sample> read() {
    const std::string text = read_text(path_, kMostBytes);
    std::size_t line = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view content = std::string_view(text).substr(at, end - at);
      ++line;
      if (content.find_first_not_of(" \t\r") != std::string_view::npos)
        read_line(content, line);
      at = end + 1;
    }
    if (samples_.empty())
      fail(ErrorKind::File, "{}: there are no samples: each line is to hold one", path_);
    return std::move(samples_);
  }

private:
  void read_line(std::string_view content, std::size_t line) {
    line_ = line;
    const std::string where = fmt::format("{}: line {}", path_, line);
    const nlohmann::json json = text::parse_json(content, where);
    const text::Field object(json, where + ": ");
    if (!json.is_object())
      object.refuse("is no JSON object");
    const auto only = [&](std::initializer_list<std::string_view> names) {
      for (const auto& [name, value] : json.items())
        if (std::ranges::find(names, name) == names.end())
          object.refuse(fmt::format("the field '{}' is not known beside '{}'", printable(name),
                                    *names.begin()));
    };
    if (object.find("messages")) {
      only({"messages"});
      conversation(object["messages"]);
    } else if (object.find("prompt") || object.find("completion")) {
      only({"prompt", "completion"});
      const std::string &prompt = object["prompt"].text(), &answer = object["completion"].text();
      if (answer.empty())
        object["completion"].refuse("is empty: there is nothing to learn");
      add({prompt + answer, {{prompt.size(), prompt.size() + answer.size()}}}, true);
    } else if (object.find("text")) {
      only({"text"});
      const std::string& whole = object["text"].text();
      if (whole.empty())
        object["text"].refuse("is empty: there is nothing to learn");
      add({whole, {{0, whole.size()}}}, true);
    } else {
      object.refuse("has neither 'messages' nor 'prompt' and 'completion' nor 'text'");
    }
  }

  void conversation(const text::Field& messages) {
    std::vector<ChatMessage> all;
    std::vector<std::size_t> answers;
    for (const text::Field& message : messages.items()) {
      for (const auto& [name, value] : message.value().items())
        if (name != "role" && name != "content")
          message.refuse(
              fmt::format("has the field '{}'; 'role' and 'content' are known", printable(name)));
      if (message["role"].text() == "assistant")
        answers.push_back(all.size());
      all.push_back({message["role"].text(), message["content"].text()});
    }
    if (answers.empty())
      messages.refuse("has no message of the role 'assistant': there is nothing to learn");
    if (const auto whole = marked(all, answers)) {
      add(*whole, false);
      return;
    }
    for (const std::size_t answer : answers) {
      const std::span<const ChatMessage> upto = std::span(all).first(answer + 1);
      const auto one = marked(upto, {&answer, 1});
      if (!one)
        messages.refuse(fmt::format("cannot be learnt: the chat template lets no answer begin as "
                                    "it writes message {}",
                                    answer));
      add(*one, false);
    }
  }

  /// The text of a conversation with its answers; nothing where the template writes one of them
  /// otherwise than at the end of a conversation.
  std::optional<Marked> marked(std::span<const ChatMessage> messages,
                               std::span<const std::size_t> answers) {
    Marked whole{rendered(messages, false), {}};
    for (const std::size_t answer : answers) {
      const std::string before = rendered(messages.first(answer), true),
                        with = rendered(messages.first(answer + 1), false);
      if (before.size() >= with.size() || !whole.text.starts_with(before) ||
          !whole.text.starts_with(with))
        return {};
      whole.learnt.emplace_back(before.size(), with.size());
    }
    return whole;
  }

  std::string rendered(std::span<const ChatMessage> messages, bool generation_prompt) {
    if (!template_) {
      const auto text = tokenizer_.chat_template();
      if (!text)
        fail(ErrorKind::File,
             "{}: line {}: 'messages' need a chat template; there is none beside the tokenizer",
             path_, line_);
      template_ = ChatTemplate::parse(*text);
    }
    try {
      return template_->render(messages, tokenizer_, {.generation_prompt = generation_prompt});
    } catch (const Error& error) {
      fail(error.kind(), "{}: line {}: {}", path_, line_, error.what());
    }
  }

  /// How many of the text's tokens are those of its first `bytes`.
  std::size_t tokens_of(const std::string& text, std::size_t bytes, const std::vector<int>& tokens,
                        bool special) const {
    if (bytes == text.size())
      return tokens.size();
    const std::vector<int> part =
        tokenizer_.encode(std::string_view(text).substr(0, bytes), special);
    return static_cast<std::size_t>(std::ranges::mismatch(tokens, part).in1 - tokens.begin());
  }

  /// `plain`: no template has written special tokens and the end.
  void add(const Marked& marked, bool plain) {
    Sample sample{tokenizer_.encode(marked.text, plain), {}, line_};
    sample.learnt.resize(sample.tokens.size());
    for (const auto& [begin, end] : marked.learnt) {
      const std::size_t last = tokens_of(marked.text, end, sample.tokens, plain);
      for (std::size_t i = tokens_of(marked.text, begin, sample.tokens, plain); i < last; ++i)
        sample.learnt[i] = true;
    }
    if (const auto end = tokenizer_.special_id("eos_token");
        plain && end && (sample.tokens.empty() || sample.tokens.back() != *end)) {
      sample.tokens.push_back(*end);
      sample.learnt.push_back(true);
    }
    if (!sample.learnt.empty())
      sample.learnt[0] = false; // nothing stands before it
    if (std::ranges::find(sample.learnt, true) == sample.learnt.end())
      fail(ErrorKind::File, "{}: line {}: there is no token to learn", path_, line_);
    if (std::ssize(sample.tokens) > length_)
      fail(ErrorKind::Value, "{}: line {}: the sample has {} tokens, a row holds {}", path_, line_,
           sample.tokens.size(), length_);
    for (const int token : sample.tokens)
      if (token >= vocabulary_)
        fail(ErrorKind::Value,
             "{}: line {}: the tokenizer gives token {}, the model's vocabulary has {}: they do "
             "not belong together",
             path_, line_, token, vocabulary_);
    samples_.push_back(std::move(sample));
  }

  std::string path_;
  const Tokenizer& tokenizer_;
  std::int64_t length_, vocabulary_;
  std::optional<ChatTemplate> template_;
  std::size_t line_ = 0;
  std::vector<Sample> samples_;
};

} // namespace

std::vector<Sample> read_samples(const std::filesystem::path& data, const Tokenizer& tokenizer,
                                 std::int64_t length, std::int64_t vocabulary) {
  return Reader(data, tokenizer, length, vocabulary).read();
}

} // namespace egret::finetune
