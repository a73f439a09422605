#include "support/sizes.h"

#include "support/fail.h"

#include <charconv>
#include <cmath>
#include <optional>

namespace egret {

namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// What a unit stands for; nothing for a word that is none.
std::optional<double> unit_of(std::string_view word) {
  while (word.starts_with(' '))
    word.remove_prefix(1);
  if (word.empty())
    return 1;
  constexpr std::string_view kLetters = "bkmgt";
  const std::size_t power = kLetters.find(lower(word[0]));
  if (power == std::string_view::npos)
    return std::nullopt;
  word.remove_prefix(1);
  if (power > 0 && word.size() == 2 && lower(word[0]) == 'i')
    word.remove_prefix(1);
  if (!word.empty() && (power == 0 || word.size() > 1 || lower(word[0]) != 'b'))
    return std::nullopt;
  return std::exp2(10.0 * static_cast<double>(power));
}

} // namespace

std::int64_t parse_bytes(std::string_view text, std::string_view who) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const auto unit = unit_of(std::string_view(rest, static_cast<std::size_t>(end - rest)));
  const double bytes = unit ? std::floor(number * *unit) : 0;
  if (error != std::errc() || !unit || !(bytes >= 1 && bytes <= 0x1p62))
    fail(ErrorKind::Value, "{}: `{}` is no size above 0 such as 64MB, 1.5GB or 4096", who, text);
  return static_cast<std::int64_t>(bytes);
}

std::int64_t checked_bytes(std::int64_t bytes, std::string_view who) {
  if (bytes <= 0)
    fail(ErrorKind::Value, "{}: {} is no number of bytes above 0", who, bytes);
  return bytes;
}

} // namespace egret
