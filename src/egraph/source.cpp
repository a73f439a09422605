#include "egraph/source.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::egraph {

std::uint32_t Sources::add(std::string name, std::string text) {
  files_.push_back(
      std::make_shared<const SourceFile>(SourceFile{std::move(name), std::move(text)}));
  return static_cast<std::uint32_t>(files_.size() - 1);
}

Position Sources::position(Span span) const {
  if (span.file >= files_.size())
    return {};
  std::string_view text = files_[span.file]->text;
  std::size_t end = std::min<std::size_t>(span.begin, text.size());
  Position at;
  std::size_t line_start = 0;
  for (std::size_t i = text.find('\n'); i != std::string_view::npos && i < end;
       i = text.find('\n', i + 1)) {
    ++at.line;
    line_start = i + 1;
  }
  at.column = static_cast<std::uint32_t>(end - line_start + 1);
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
  std::size_t line_start = begin - (at.column - 1);
  std::size_t line_end = std::min(text.find('\n', begin), text.size());
  std::size_t shown_from = begin - line_start > kWidest / 2 ? begin - kWidest / 2 : line_start;
  std::size_t shown_to = std::min(line_end, shown_from + kWidest);
  std::size_t marked =
      std::clamp<std::size_t>(span.end, begin + 1, std::max(shown_to, begin + 1)) - begin;
  std::string out = fmt::format("{}: {}\n", where(span), message);
  fmt::format_to(std::back_inserter(out), "{:>5} | {}\n", at.line,
                 text.substr(shown_from, shown_to - shown_from));
  fmt::format_to(std::back_inserter(out), "      | {}{}", std::string(begin - shown_from, ' '),
                 std::string(marked, '^'));
  throw SourceError(kind, out, at.line, at.column);
}

} // namespace egret::egraph
