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
};

/// Line and column, both counted from 1; the column counts bytes.
struct Position {
  std::uint32_t line = 1;
  std::uint32_t column = 1;
};

/// Every text of a session, so that a span can be shown long after it was read.
class Sources {
public:
  std::uint32_t add(std::string name, std::string text);
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
