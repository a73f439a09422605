// What is wrong with JSON text, without the name that the library gives its exceptions.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace egret {

/// "parse error at line 1, column 5: ..." of "[json.exception.parse_error.101] parse error at ...".
inline std::string_view json_reason(const std::exception& error) {
  std::string_view reason = error.what();
  if (const auto end = reason.find("] "); reason.starts_with('[') && end != std::string_view::npos)
    reason.remove_prefix(end + 2);
  return reason;
}

/// What is wrong with a text that has a byte of 0, which the parser takes for the end of the text;
/// empty where there is none. No JSON has one.
inline std::string zero_byte_reason(std::string_view text) {
  const std::size_t at = text.find('\0');
  return at == std::string_view::npos ? "" : "byte " + std::to_string(at) + " is 0";
}

} // namespace egret
