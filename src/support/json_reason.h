// What is wrong with JSON text, without the name that the library gives its exceptions.
#pragma once

#include <exception>
#include <string_view>

namespace egret {

/// "parse error at line 1, column 5: ..." of "[json.exception.parse_error.101] parse error at ...".
inline std::string_view json_reason(const std::exception& error) {
  std::string_view reason = error.what();
  if (const auto end = reason.find("] "); reason.starts_with('[') && end != std::string_view::npos)
    reason.remove_prefix(end + 2);
  return reason;
}

} // namespace egret
