#include "egraph/source.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::egraph {

std::uint32_t Sources::add(std::string name, std::string text, std::uint32_t first_line) {
  files_.push_back(
      std::make_shared<const SourceFile>(SourceFile{std::move(name), std::move(text), first_line}));
  return static_cast<std::uint32_t>(files_.size() - 1);
}

std::size_t utf8_length(std::string_view text) {
  if (text.empty())
    return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = byte(0) < 0x80         ? 1
                             : byte(0) >> 5 == 0x6  ? 2
                             : byte(0) >> 4 == 0xE  ? 3
                             : byte(0) >> 3 == 0x1E ? 4
                                                    : 0;
  if (length > text.size())
    return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (byte(i) >> 6 != 0x2)
      return 0;
  }
  // Overlong forms, surrogates and what is beyond Unicode.
  const bool wrong =
      length == 2   ? byte(0) < 0xC2
      : length == 3 ? (byte(0) == 0xE0 && byte(1) < 0xA0) || (byte(0) == 0xED && byte(1) >= 0xA0)
      : length == 4 ? (byte(0) == 0xF0 && byte(1) < 0x90) || byte(0) > 0xF4 ||
                          (byte(0) == 0xF4 && byte(1) >= 0x90)
                    : false;
  return wrong ? 0 : length;
}

namespace {

/// How many characters a text shows; what is not UTF-8 counts byte by byte.
std::size_t characters(std::string_view text) {
  std::size_t count = 0;
  for (; !text.empty(); ++count)
    text.remove_prefix(std::max<std::size_t>(1, utf8_length(text)));
  return count;
}

/// Blanks as wide as a text: its tabs stay tabs.
std::string blanks(std::string_view text) {
  std::string out;
  for (; !text.empty(); text.remove_prefix(std::max<std::size_t>(1, utf8_length(text))))
    out += text[0] == '\t' ? '\t' : ' ';
  return out;
}

/// The nearest beginning of a character before a place.
std::size_t character_at(std::string_view text, std::size_t at) {
  for (int back = 0;
       back < 3 && at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) >> 6) == 0x2;
       ++back)
    --at;
  return at;
}

} // namespace

Position Sources::position(Span span) const {
  if (span.file >= files_.size())
    return {};
  std::string_view text = files_[span.file]->text;
  std::size_t end = std::min<std::size_t>(span.begin, text.size());
  Position at;
  at.line = files_[span.file]->first_line;
  std::size_t line_start = 0;
  for (std::size_t i = text.find('\n'); i != std::string_view::npos && i < end;
       i = text.find('\n', i + 1)) {
    ++at.line;
    line_start = i + 1;
  }
  at.column = static_cast<std::uint32_t>(characters(text.substr(line_start, end - line_start)) + 1);
  return at;
}

std::string_view Sources::text(Span span) const {
  if (span.file >= files_.size())
    return {};
  std::string_view text = files_[span.file]->text;
  std::size_t begin = std::min<std::size_t>(span.begin, text.size());
  std::size_t end = std::min<std::size_t>(span.end, text.size());
  return text.substr(begin, end - begin);
}

std::string Sources::where(Span span) const {
  if (span.file >= files_.size())
    return "<unknown>";
  Position at = position(span);
  return fmt::format("{}:{}:{}", files_[span.file]->name, at.line, at.column);
}

void Sources::fail(ErrorKind kind, Span span, const std::string& message) const {
  if (span.file >= files_.size())
    throw SourceError(kind, message, 0, 0);
  constexpr std::size_t kWidest = 200; // of the excerpt: generated programs have very long lines
  Position at = position(span);
  std::string_view text = files_[span.file]->text;
  std::size_t begin = std::min<std::size_t>(span.begin, text.size());
  const std::size_t newline = begin == 0 ? std::string_view::npos : text.rfind('\n', begin - 1);
  std::size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
  std::size_t line_end = std::min(text.find('\n', begin), text.size());
  std::size_t shown_from =
      begin - line_start > kWidest / 2 ? character_at(text, begin - kWidest / 2) : line_start;
  std::size_t shown_to = std::min(line_end, shown_from + kWidest);
  if (shown_to < line_end)
    shown_to = character_at(text, shown_to);
  std::size_t marked =
      std::clamp<std::size_t>(span.end, begin + 1, std::max(shown_to, begin + 1)) - begin;
  std::string out = fmt::format("{}: {}\n", where(span), message);
  fmt::format_to(std::back_inserter(out), "{:>5} | {}\n", at.line,
                 text.substr(shown_from, shown_to - shown_from));
  fmt::format_to(
      std::back_inserter(out), "      | {}{}", blanks(text.substr(shown_from, begin - shown_from)),
      std::string(std::max<std::size_t>(1, characters(text.substr(begin, marked))), '^'));
  throw SourceError(kind, out, at.line, at.column);
}

} // namespace egret::egraph
