// Search for a text in a text, in time that is linear in both whatever they are. That of
// std::string multiplies their lengths at worst, which a text from outside can bring about.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace egret {

/// Where `part` first begins in `text` at or behind `from`; npos where it does not.
inline std::size_t find_text(std::string_view text, std::string_view part, std::size_t from = 0) {
  if (from > text.size())
    return std::string_view::npos;
  if (part.empty())
    return from;
  const void* at = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return at == nullptr ? std::string_view::npos
                       : static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
}

/// Where `part` last begins in `text`; npos where it does not.
inline std::size_t find_last_text(std::string_view text, std::string_view part) {
  const std::string reversed(text.rbegin(), text.rend()), wanted(part.rbegin(), part.rend());
  const std::size_t at = find_text(reversed, wanted);
  return at == std::string_view::npos ? at : text.size() - at - part.size();
}

} // namespace egret
