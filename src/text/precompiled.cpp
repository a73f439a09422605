// SentencePiece's compiled normalization table.
#include "text/characters.h"
#include "text/normalizer.h"
#include "text/utf8.h"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace egret::text {

namespace {

std::string from_base64(const Field& field) {
  static constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string_view text = field.text();
  while (text.ends_with('='))
    text.remove_suffix(1);
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t value = kLetters.find(c);
    if (value == std::string_view::npos)
      field.refuse("not base64");
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if ((count += 6) >= 8)
      out += static_cast<char>(bits >> (count -= 8) & 0xff);
  }
  return out;
}

class Precompiled final : public Normalizer {
public:
  explicit Precompiled(const Field& field) : Normalizer(field) {
    const Field map = field["precompiled_charsmap"];
    const std::string bytes = from_base64(map);
    auto word = [&](std::size_t at) {
      std::uint32_t value = 0;
      for (std::size_t i = 0; i < 4; ++i)
        value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << 8 * i;
      return value;
    };
    if (bytes.empty())
      return;
    if (bytes.size() < 4 || word(0) % 4 != 0 || word(0) > bytes.size() - 4)
      map.refuse("the table is longer than its bytes");
    const std::size_t end = 4 + word(0);
    for (std::size_t at = 4; at < end; at += 4)
      units_.push_back(word(at));
    texts_ = bytes.substr(end);
    if (!is_utf8(texts_))
      map.refuse("its replacements are not UTF-8");
  }

  void run(std::string& text, RegexScratch&, std::size_t most) const override {
    std::string out;
    out.reserve(text.size());
    for (std::string_view rest = text; !rest.empty();) {
      check(out.size(), most);
      std::string_view cluster = rest.substr(0, grapheme_bytes(rest));
      rest.remove_prefix(cluster.size());
      // Short clusters are looked up whole, then by character.
      if (cluster.size() < 6) {
        if (const auto whole = find(cluster)) {
          out += *whole;
          continue;
        }
      }
      while (!cluster.empty()) {
        const std::string_view character = cluster.substr(0, utf8_length(cluster[0]));
        out += find(character).value_or(character);
        check(out.size(), most);
        cluster.remove_prefix(character.size());
      }
    }
    text = std::move(out);
  }

private:
  /// The replacement of the shortest key that `text` begins with. A unit of the double array holds
  /// a label, whether a value follows, and the offset of its children.
  std::optional<std::string_view> find(std::string_view text) const {
    auto offset = [](std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); };
    std::size_t at = 0;
    if (units_.empty())
      return std::nullopt;
    at ^= offset(units_[0]);
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      at ^= byte;
      if (byte == 0 || at >= units_.size() || (units_[at] & 0x800000ff) != byte)
        return std::nullopt;
      const std::uint32_t unit = units_[at];
      at ^= offset(unit);
      if ((unit >> 8 & 1) == 0)
        continue;
      if (at >= units_.size())
        return std::nullopt;
      const std::size_t place = units_[at] & 0x7fffffff;
      if (place >= texts_.size() || (static_cast<unsigned char>(texts_[place]) & 0xc0) == 0x80)
        return std::nullopt;
      return std::string_view(texts_).substr(place, texts_.find('\0', place) - place);
    }
    return std::nullopt;
  }

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

} // namespace

std::unique_ptr<Normalizer> make_precompiled(const Field& field) {
  return std::make_unique<Precompiled>(field);
}

} // namespace egret::text
