#include "egret/data.h"
#include "support/fail.h"

#include <algorithm>

namespace egret::data {

namespace {

std::string shown(char c) {
  auto code = static_cast<unsigned char>(c);
  return code >= 0x20 && code < 0x7f ? fmt::format("'{}'", c) : fmt::format("'\\x{:02x}'", code);
}

} // namespace

CharCodec::CharCodec(std::string_view alphabet) : alphabet_(alphabet) {
  std::fill(std::begin(number_), std::end(number_), std::int16_t{-1});
  for (std::size_t i = 0; i < alphabet.size(); ++i) {
    auto& number = number_[static_cast<unsigned char>(alphabet[i])];
    if (number >= 0)
      fail(ErrorKind::Value, "CharCodec: {} is in the alphabet twice", shown(alphabet[i]));
    number = static_cast<std::int16_t>(i);
  }
}

CharCodec CharCodec::of_text(std::string_view text) {
  bool seen[256] = {};
  for (char c : text)
    seen[static_cast<unsigned char>(c)] = true;
  std::string alphabet;
  for (int code = 0; code < 256; ++code)
    if (seen[code])
      alphabet += static_cast<char>(code);
  return CharCodec(alphabet);
}

std::int64_t CharCodec::encode(char c) const {
  std::int64_t number = number_[static_cast<unsigned char>(c)];
  if (number < 0)
    fail(ErrorKind::Value, "CharCodec: {} is not in the alphabet of {} characters", shown(c),
         size());
  return number;
}

std::vector<std::int64_t> CharCodec::encode(std::string_view text) const {
  std::vector<std::int64_t> numbers;
  numbers.reserve(text.size());
  for (char c : text)
    numbers.push_back(encode(c));
  return numbers;
}

std::string CharCodec::decode(std::span<const std::int64_t> numbers) const {
  std::string text;
  for (std::int64_t number : numbers) {
    if (number < 0 || number >= size())
      fail(ErrorKind::Index, "CharCodec: {} is no character of an alphabet of {}", number, size());
    text += alphabet_[static_cast<std::size_t>(number)];
  }
  return text;
}

} // namespace egret::data
