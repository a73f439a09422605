#include "text/grammar/json_texts.h"

#include "text/utf8.h"

#include <algorithm>
#include <fmt/format.h>
#include <span>

namespace egret::text::grammar {

namespace {

NodePtr digits(std::uint32_t least, std::uint32_t most) {
  return repeat(one_of({{'0', '9'}}), least, most);
}

NodePtr hex_digits(std::uint32_t count) {
  return repeat(one_of({{'0', '9'}, {'a', 'f'}, {'A', 'F'}}), count, count);
}

/// What may stand unescaped within quotes.
std::vector<CharRange> plain_chars() {
  return complement({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
}

/// Numbers between two that have equally many digits.
NodePtr of_equal_length(std::string_view least, std::string_view most) {
  if (least.empty())
    return literal("");
  const auto rest = static_cast<std::uint32_t>(least.size() - 1);
  if (least == std::string(least.size(), '0') && most == std::string(most.size(), '9'))
    return digits(rest + 1, rest + 1);
  if (least[0] == most[0])
    return sequence(
        {literal(least.substr(0, 1)), of_equal_length(least.substr(1), most.substr(1))});
  std::vector<NodePtr> all;
  all.push_back(sequence(
      {literal(least.substr(0, 1)), of_equal_length(least.substr(1), std::string(rest, '9'))}));
  if (least[0] + 1 < most[0])
    all.push_back(sequence(
        {one_of({{static_cast<char32_t>(least[0] + 1), static_cast<char32_t>(most[0] - 1)}}),
         digits(rest, rest)}));
  all.push_back(sequence(
      {literal(most.substr(0, 1)), of_equal_length(std::string(rest, '0'), most.substr(1))}));
  return choice(std::move(all));
}

/// Whole numbers from 0 on without a sign.
NodePtr unsigned_integer(std::int64_t least, std::int64_t most) {
  const std::string low = std::to_string(least), high = std::to_string(most);
  std::vector<NodePtr> all;
  for (std::size_t n = low.size(); n <= high.size(); ++n)
    all.push_back(of_equal_length(n == low.size() ? low : "1" + std::string(n - 1, '0'),
                                  n == high.size() ? high : std::string(n, '9')));
  return choice(std::move(all));
}

/// Texts that are none of some, which begin alike in their first characters; `texts` are in order.
NodePtr other_than(std::span<const std::u32string> texts, std::size_t alike) {
  const bool ends = std::ranges::any_of(texts, [&](const auto& t) { return t.size() == alike; });
  std::vector<CharRange> known;
  std::vector<NodePtr> all;
  if (!ends)
    all.push_back(literal(""));
  for (std::size_t i = 0; i < texts.size();) {
    if (texts[i].size() == alike) {
      ++i;
      continue;
    }
    const char32_t c = texts[i][alike];
    const std::size_t begin = i;
    while (i < texts.size() && texts[i][alike] == c)
      ++i;
    known.push_back({c, c});
    all.push_back(
        sequence({string_char({{c, c}}), other_than(texts.subspan(begin, i - begin), alike + 1)}));
  }
  all.push_back(sequence({one_of(intersection(complement(std::move(known)), plain_chars())),
                          repeat(string_char(), 0)}));
  return choice(std::move(all));
}

} // namespace

NodePtr blanks() {
  return optional(
      choice({literal(" "),
              sequence({literal("\n"), repeat(one_of({{' ', ' '}, {'\t', '\t'}}), 0, 20)})}));
}

NodePtr string_char() {
  // Surrogates are left out: half a pair is no character.
  const NodePtr code =
      choice({sequence({one_of({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}}),
                        hex_digits(3)}),
              sequence({one_of({{'d', 'd'}, {'D', 'D'}}), one_of({{'0', '7'}}), hex_digits(2)})});
  std::vector<CharRange> names;
  for (const char c : std::string_view("\"\\/bfnrt"))
    names.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
  return choice({one_of(plain_chars()),
                 sequence({literal("\\"),
                           choice({one_of(std::move(names)), sequence({literal("u"), code})})})});
}

NodePtr string_char(const std::vector<CharRange>& ranges) {
  std::vector<NodePtr> all;
  if (auto plain = intersection(ranges, plain_chars()); !plain.empty())
    all.push_back(one_of(std::move(plain)));
  constexpr std::string_view kChars = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  for (const CharRange& range : intersection(ranges, complement(plain_chars())))
    for (char32_t c = range.first; c <= range.last; ++c) {
      const std::size_t named = kChars.find(static_cast<char>(c));
      all.push_back(literal(named != std::string_view::npos
                                ? std::string("\\") + kNames[named]
                                : fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c))));
    }
  return choice(std::move(all));
}

NodePtr other_text(const std::vector<std::string>& texts) {
  std::vector<std::u32string> chars;
  chars.reserve(texts.size());
  for (const std::string& text : texts) {
    std::u32string one;
    for (std::size_t at = 0; at < text.size();)
      one += next_char(text, at);
    chars.push_back(std::move(one));
  }
  std::ranges::sort(chars);
  return other_than(chars, 0);
}

NodePtr json_string(std::uint32_t least, std::uint32_t most) {
  return sequence({literal("\""), repeat(string_char(), least, most), literal("\"")});
}

NodePtr json_number() {
  // Bounded, so that a number ends and a double holds it.
  const NodePtr whole = choice({literal("0"), sequence({one_of({{'1', '9'}}), digits(0, 15)})});
  return sequence({optional(literal("-")), whole, optional(sequence({literal("."), digits(1, 16)})),
                   optional(sequence({one_of({{'e', 'e'}, {'E', 'E'}}),
                                      optional(one_of({{'+', '+'}, {'-', '-'}})), digits(1, 2)}))});
}

NodePtr json_integer(std::int64_t least, std::int64_t most) {
  least = std::max(least, -kMostInteger);
  most = std::min(most, kMostInteger);
  std::vector<NodePtr> all;
  if (most >= 0 && most >= least)
    all.push_back(unsigned_integer(std::max<std::int64_t>(least, 0), most));
  if (least < 0 && most >= least)
    all.push_back(
        sequence({literal("-"), unsigned_integer(std::max<std::int64_t>(-most, 1), -least)}));
  return choice(std::move(all));
}

} // namespace egret::text::grammar
