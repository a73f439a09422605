// Source text with positions: files, spans, and error messages that show the line at fault.
#pragma once

#include "egret/egraph.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace egret::egraph {

/// A piece of a source file, as byte offsets.
struct Span {
  std::uint32_t file = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

/// One text that was read: its name for messages and its contents.
struct SourceFile {
  std::string name;
  std::string text;
  std::uint32_t first_line = 1; ///< a number: of a part of a longer text
};

/// Line and column, both counted from 1; the column counts characters (code points of UTF-8).
struct Position {
  std::uint32_t line = 1;
  std::uint32_t column = 1;
};

/// Bytes of the character of UTF-8 at the beginning of a text; 0 if there is none.
std::size_t utf8_length(std::string_view text);

/// Every text of a session, so that a span can be shown long after it was read.
class Sources {
public:
  std::uint32_t add(std::string name, std::string text, std::uint32_t first_line = 1);
  const SourceFile& file(std::uint32_t index) const { return *files_[index]; }
  std::size_t size() const { return files_.size(); }
  Position position(Span span) const;
  std::string_view text(Span span) const;

  /// Throws SourceError: "file:line:column: message", then the source line with the span
  /// underlined.
  [[noreturn]] void fail(ErrorKind kind, Span span, const std::string& message) const;
  /// "file:line:column" of a span.
  std::string where(Span span) const;

private:
  std::vector<std::shared_ptr<const SourceFile>> files_; // shared by the copies of an e-graph
};

} // namespace egret::egraph
