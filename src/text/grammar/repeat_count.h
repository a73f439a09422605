// Numbers of repetitions, as in `{2,5}` of GBNF and of patterns.
#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <string>
#include <string_view>

namespace egret::text::grammar {

/// Reads decimal digits of `text` from `at` on. Where there are none, or the number is above
/// `most`, `refuse` is called with what is wrong, and throws.
template <class Refuse>
std::uint32_t repeat_count(std::string_view text, std::size_t& at, std::uint32_t most,
                           const Refuse& refuse) {
  std::uint32_t value = 0;
  const std::size_t begin = at;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    value = 10 * value + static_cast<std::uint32_t>(text[at] - '0');
    if (value > most)
      refuse(fmt::format("more than {} repetitions", most));
  }
  if (begin == at)
    refuse("a number is needed here");
  return value;
}

} // namespace egret::text::grammar
