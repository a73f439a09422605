#include "text/characters.h"

#include "support/fail.h"
#include "text/utf8.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utf8proc.h>

namespace egret::text {

namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool within(utf8proc_category_t c, utf8proc_category_t first, utf8proc_category_t last) {
  return c >= first && c <= last;
}

} // namespace

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

bool is_numeric(char32_t c) {
  return within(category(c), UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  return within(category(c), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

bool is_mark(char32_t c) {
  return within(category(c), UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

bool is_nonspacing_mark(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_MN;
}

bool is_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r')
    return false;
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF ||
         kind == UTF8PROC_CATEGORY_CO;
}

bool is_word(char32_t c) {
  const utf8proc_category_t kind = category(c);
  // Alphabetic beyond letters, marks and letter numbers: the circled and squared Latin letters.
  return within(kind, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_ME) || kind == UTF8PROC_CATEGORY_ND ||
         kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_PC || c == 0x200c ||
         c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
         (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

bool is_cjk(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
         (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

void append_lower(std::string& out, char32_t c) {
  if (c == 0x130)
    out += "i\xcc\x87"; // the only character whose lower case has two
  else
    append_char(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

std::string normal_form(std::string_view text, NormalForm form) {
  // No form changes ASCII, and below U+0300 nothing composes or moves.
  const bool latin = std::all_of(text.begin(), text.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0xcc; });
  if ((form == NormalForm::NFC && latin) || is_ascii(text))
    return std::string(text);
  int options = UTF8PROC_STABLE;
  options |=
      form == NormalForm::NFC || form == NormalForm::NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::NFKC || form == NormalForm::NFKD)
    options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* bytes = nullptr;
  const utf8proc_ssize_t length = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()), &bytes, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(bytes, &std::free);
  if (length < 0)
    fail(ErrorKind::Memory, "normalization of {} bytes: {}", text.size(), utf8proc_errmsg(length));
  return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length)};
}

std::size_t grapheme_bytes(std::string_view text) {
  std::size_t at = 0;
  utf8proc_int32_t state = 0;
  char32_t last = next_char(text, at);
  while (at < text.size()) {
    std::size_t next = at;
    const char32_t c = next_char(text, next);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last),
                                         static_cast<utf8proc_int32_t>(c), &state))
      break;
    last = c;
    at = next;
  }
  return at;
}

} // namespace egret::text
