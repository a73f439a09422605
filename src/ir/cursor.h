// A place in a text that is being parsed.
#pragma once

#include "support/fail.h"

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace egret {

/// Reads tokens of one text and throws Error(Parse) with line and column. Spaces, tabs and comments
/// (# to the end of the line) are skipped before each token; a line break is a token.
class Cursor {
public:
  Cursor(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  template <class... Args>
  [[noreturn]] void fail_at(std::size_t at, fmt::format_string<Args...> format,
                            Args&&... args) const {
    std::size_t line = 1, column = 1;
    for (std::size_t i = 0; i < at && i < text_.size(); ++i) {
      ++column;
      if (text_[i] == '\n') {
        ++line;
        column = 1;
      }
    }
    throw Error(ErrorKind::Parse, fmt::format("{}: line {}, column {}: {}", what_, line, column,
                                              fmt::format(format, std::forward<Args>(args)...)));
  }
  template <class... Args>
  [[noreturn]] void fail_here(fmt::format_string<Args...> format, Args&&... args) const {
    fail_at(position_, format, std::forward<Args>(args)...);
  }

  /// Whether an error was thrown by this cursor and so has its place already.
  bool is_mine(const Error& error) const {
    return error.kind() == ErrorKind::Parse &&
           std::string_view(error.what()).starts_with(fmt::format("{}: line ", what_));
  }

  /// The start of the next token.
  std::size_t position() {
    skip_space();
    return position_;
  }
  bool at_end() { return position() >= text_.size(); }
  char peek() { return at_end() ? '\0' : text_[position_]; }

  bool accept(std::string_view token) {
    if (!text_.substr(position()).starts_with(token))
      return false;
    position_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token))
      fail_here("expected `{}`, found {}", token, found());
  }
  bool accept_line_end() {
    if (at_end())
      return true;
    return accept("\n");
  }
  void expect_line_end() {
    if (!accept_line_end())
      fail_here("expected the end of the line, found {}", found());
  }

  /// Letters, digits, _ $ and . starting with a letter, _ or $; empty when there is none.
  std::string_view word() {
    std::size_t begin = position(), end = begin;
    auto letter = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
    };
    if (end < text_.size() && letter(text_[end]))
      while (end < text_.size() && (letter(text_[end]) || digit(text_[end]) || dot_in_word(end)))
        ++end;
    position_ = end;
    return text_.substr(begin, end - begin);
  }
  std::string_view expect_word(std::string_view what) {
    std::string_view result = word();
    if (result.empty())
      fail_here("expected {}, found {}", what, found());
    return result;
  }
  bool accept_word(std::string_view wanted) {
    std::size_t before = position();
    if (word() == wanted)
      return true;
    position_ = before;
    return false;
  }

  bool at_digit() { return digit(peek()); }
  /// A decimal number, a minus sign allowed.
  std::int64_t integer(std::string_view what) {
    std::size_t begin = position();
    std::int64_t value = 0;
    auto [end, error] = std::from_chars(text_.data() + begin, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range)
      fail_here("{} does not fit 64 bits", what);
    if (error != std::errc{})
      fail_here("expected {}, found {}", what, found());
    position_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  /// Everything up to a space, a line break or a comment.
  std::string_view until_space() {
    std::size_t begin = position();
    std::size_t end = std::min(text_.find_first_of(" \t\r\n#", begin), text_.size());
    position_ = end;
    return text_.substr(begin, end - begin);
  }

  /// Everything up to the comma or bracket that ends this item of a list, parentheses respected.
  std::string_view list_item() {
    std::size_t begin = position(), end = begin;
    for (int depth = 0; end < text_.size() && text_[end] != '\n' && text_[end] != '#'; ++end) {
      char c = text_[end];
      if (depth == 0 && (c == ',' || c == ']'))
        break;
      depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    position_ = end;
    return text_.substr(begin, end - begin);
  }

  /// A text in double quotes with the escapes \" \\ \n \t \xHH.
  std::string quoted_text() {
    std::size_t begin = position();
    expect("\"");
    std::string result;
    while (position_ < text_.size() && text_[position_] != '"' && text_[position_] != '\n') {
      char c = text_[position_++];
      result += c == '\\' ? escaped() : c;
    }
    if (position_ >= text_.size() || text_[position_] != '"')
      fail_at(begin, "this text has no closing quote");
    ++position_;
    return result;
  }

  /// What stands here, for messages.
  std::string found() {
    if (at_end())
      return "the end of the text";
    if (text_[position_] == '\n')
      return "the end of the line";
    std::size_t end = std::min(text_.find_first_of(" \t\r\n", position_), position_ + 24);
    return fmt::format("`{}`", text_.substr(position_, end - position_));
  }

private:
  static bool digit(char c) { return c >= '0' && c <= '9'; }
  // `0..5` ends a number, `a.b` is one word, `a..b` are two
  bool dot_in_word(std::size_t at) const {
    return text_[at] == '.' && at + 1 < text_.size() && text_[at + 1] != '.';
  }
  void skip_space() {
    while (position_ < text_.size()) {
      char c = text_[position_];
      if (c == '#')
        position_ = std::min(text_.find('\n', position_), text_.size());
      else if (c == ' ' || c == '\t' || c == '\r')
        ++position_;
      else
        return;
    }
  }
  char escaped() {
    char c = position_ < text_.size() ? text_[position_++] : '\0';
    switch (c) {
    case '"':
    case '\\':
      return c;
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'x': {
      unsigned value = 0;
      std::string_view digits = text_.substr(position_, 2);
      auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
      if (error == std::errc{} && end == digits.data() + 2) {
        position_ += 2;
        return static_cast<char>(value);
      }
      break;
    }
    default:
      break;
    }
    fail_at(position_ - 1, "unknown escape; \\\" \\\\ \\n \\t and \\xHH are known");
  }

  std::string_view text_;
  std::string_view what_;
  std::size_t position_ = 0;
};

} // namespace egret
