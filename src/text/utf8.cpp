#include "text/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace egret::text {

Utf8Step utf8_step(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80)
    return {1, true, false};
  if (lead < 0xc2 || lead > 0xf4)
    return {1, false, false};
  const std::size_t bytes = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  for (std::size_t i = 1; i < bytes; ++i) {
    if (i == text.size())
      return {i, false, true};
    // The second byte excludes overlong forms, surrogates and what is above U+10FFFF.
    const unsigned low = i > 1 ? 0x80 : lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned high = i > 1 ? 0xbf : lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (byte(i) < low || byte(i) > high)
      return {i, false, false};
  }
  return {bytes, true, false};
}

bool is_ascii(std::string_view text) {
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080U) != 0)
      return false;
  }
  return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_utf8(std::string_view text) {
  if (is_ascii(text))
    return true;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (!step.valid)
      return false;
    text.remove_prefix(step.bytes);
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    out += step.valid ? text.substr(0, step.bytes) : kReplacement;
    text.remove_prefix(step.bytes);
  }
  return out;
}

void append_char(std::string& out, char32_t c) {
  auto put = [&](char32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6);
    put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3f));
    put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  }
}

std::size_t count_chars(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

} // namespace egret::text
