// UTF-8: decoding, and the replacement of what is not valid as Python and Rust do it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace egret::text {

inline constexpr std::string_view kReplacement = "\xef\xbf\xbd"; ///< U+FFFD

/// One step through bytes of unknown origin.
struct Utf8Step {
  std::size_t bytes = 0;   ///< of a character, or of the longest start of one (maximal subpart)
  bool valid = false;      ///< a whole character
  bool incomplete = false; ///< not valid, and only because the text ends here
};

/// What stands at the start of a text that is not empty.
Utf8Step utf8_step(std::string_view text);

bool is_utf8(std::string_view text);
/// Every maximal invalid part becomes one U+FFFD (Unicode 15, section 3.9, table 3-8).
std::string replace_invalid_utf8(std::string_view text);

/// How many bytes a character takes, from its first byte. For valid text.
inline std::size_t utf8_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

/// The character at `at`, which moves behind it. For valid text.
inline char32_t next_char(std::string_view text, std::size_t& at) {
  auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80)
    return ++at, lead;
  char32_t c = 0;
  if (lead < 0xe0)
    c = (lead & 0x1f) << 6 | (byte(1) & 0x3f), at += 2;
  else if (lead < 0xf0)
    c = (lead & 0xf) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), at += 3;
  else
    c = (lead & 7) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f),
    at += 4;
  return c;
}

/// Where the character begins that ends before `at` > 0. For valid text.
inline std::size_t previous_char(std::string_view text, std::size_t at) {
  do
    --at;
  while ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80);
  return at;
}

void append_char(std::string& out, char32_t c);
std::size_t count_chars(std::string_view text); ///< of valid text
bool is_ascii(std::string_view text);

} // namespace egret::text
