#include "support/printable.h"

#include <fmt/format.h>

namespace egret {

namespace {

/// Bytes of the UTF-8 character that starts `text`, 0 when it is none (overlong forms and
/// surrogates included).
std::size_t utf8_length(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned lead = byte(0);
  std::size_t length = lead < 0x80   ? 1
                       : lead < 0xC2 ? 0
                       : lead < 0xE0 ? 2
                       : lead < 0xF0 ? 3
                       : lead < 0xF5 ? 4
                                     : 0;
  if (length > text.size())
    return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80)
      return 0;
  bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  bool outside = (lead == 0xED && byte(1) > 0x9F) || (lead == 0xF4 && byte(1) > 0x8F);
  return overlong || outside ? 0 : length;
}

/// Whether a character of `length` bytes moves the cursor or starts an escape sequence.
bool is_control(std::string_view text, std::size_t length) {
  const auto c = static_cast<unsigned char>(text[0]);
  return c < 0x20 || c == 0x7f ||
         (length == 2 && c == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0);
}

/// Moves the first character from `text` to `out`.
void take(std::string& out, std::string_view& text, std::string_view kept) {
  const std::size_t length = utf8_length(text);
  if (length != 0 && (!is_control(text, length) || kept.find(text[0]) != std::string_view::npos)) {
    out += text.substr(0, length);
    text.remove_prefix(length);
    return;
  }
  for (std::size_t i = 0; i < std::max<std::size_t>(length, 1); ++i)
    out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i]));
  text.remove_prefix(std::max<std::size_t>(length, 1));
}

} // namespace

std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 400;
  std::string out;
  while (!text.empty() && out.size() < kMost)
    take(out, text, "");
  return text.empty() ? out : out + "...";
}

std::string terminal_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty())
    take(out, text, "\n\t");
  return out;
}

} // namespace egret
