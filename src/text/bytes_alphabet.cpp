#include "text/bytes_alphabet.h"

#include "text/utf8.h"

#include <array>

namespace egret::text {

namespace {

struct Alphabet {
  std::array<char[2], 256> text = {}; ///< UTF-8; a second byte of 0 is none
  std::array<int, 0x144> byte = {};   ///< by character
};

const Alphabet& alphabet() {
  static const Alphabet kAlphabet = [] {
    Alphabet a;
    a.byte.fill(-1);
    char32_t next = 0x100; // for bytes that cannot be printed
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool printed =
          (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      const char32_t c = printed ? byte : next++;
      std::string one;
      append_char(one, c);
      a.text[byte][0] = one[0];
      a.text[byte][1] = one.size() > 1 ? one[1] : '\0';
      a.byte[c] = static_cast<int>(byte);
    }
    return a;
  }();
  return kAlphabet;
}

} // namespace

void append_alphabet(std::string_view text, std::string& out) {
  const Alphabet& a = alphabet();
  const std::size_t before = out.size();
  out.resize(before + 2 * text.size());
  char* to = out.data() + before;
  for (const char c : text) {
    const char(&letter)[2] = a.text[static_cast<unsigned char>(c)];
    to[0] = letter[0];
    to[1] = letter[1];
    to += letter[1] == '\0' ? 1 : 2;
  }
  out.resize(static_cast<std::size_t>(to - out.data()));
}

std::string to_alphabet(std::string_view text) {
  std::string out;
  append_alphabet(text, out);
  return out;
}

int byte_of(char32_t c) {
  return c < alphabet().byte.size() ? alphabet().byte[c] : -1;
}

} // namespace egret::text
