#include "text/characters.h"

#include "support/fail.h"
#include "text/utf8.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <span>
#include <utf8proc.h>

namespace egret::text {

namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

struct Span {
  char32_t first, last;
};

// The tables of the originals (crates unicode_categories and unicode_normalization_alignments of
// Hugging Face's tokenizers) are those of Unicode 8.0 and 9.0, and models were trained with them.
// In these spans all punctuation, nonspacing marks and controls are younger, or changed to that
// since (DerivedAge.txt and UnicodeData.txt of the Unicode Character Database).
constexpr Span kSinceUnicode8[] = {
    {0x61d, 0x61d},     {0x7fd, 0x7fd},     {0x890, 0x8e2},     {0x9fd, 0x9fe},
    {0xa76, 0xa76},     {0xafa, 0xaff},     {0xb55, 0xb55},     {0xc04, 0xc3c},
    {0xc77, 0xc77},     {0xc84, 0xc84},     {0xd00, 0xd00},     {0xd3b, 0xd3c},
    {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},     {0x180f, 0x1886},
    {0x1abf, 0x1ace},   {0x1b7d, 0x1b7e},   {0x1df6, 0x1dfb},   {0x2e43, 0x2e5d},
    {0xa82c, 0xa82c},   {0xa8c5, 0xa8c5},   {0xa8ff, 0xa8ff},   {0xa9bd, 0xa9bd},
    {0x10d24, 0x10f89}, {0x11070, 0x11074}, {0x110c2, 0x110cd}, {0x111c9, 0x111c9},
    {0x111cf, 0x111cf}, {0x1123e, 0x11241}, {0x1133b, 0x1133b}, {0x11438, 0x1145e},
    {0x11660, 0x1166c}, {0x116b9, 0x116b9}, {0x1182f, 0x11fff}, {0x12ff1, 0x13455},
    {0x16e97, 0x16f4f}, {0x16fe2, 0x16fe4}, {0x1cf00, 0x1cf46}, {0x1e000, 0x1e4ef},
    {0x1e944, 0x1e95f}};
// Here all marks are.
constexpr Span kSinceUnicode9[] = {
    {0x7fd, 0x7fd},     {0x898, 0x8d3},     {0x9fe, 0x9fe},     {0xafa, 0xaff},
    {0xb55, 0xb55},     {0xc04, 0xc3c},     {0xcf3, 0xd00},     {0xd3b, 0xd3c},
    {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},     {0x1715, 0x1715},
    {0x180f, 0x180f},   {0x1abf, 0x1ace},   {0x1cf7, 0x1cf7},   {0x1df6, 0x1dfa},
    {0xa82c, 0xa82c},   {0xa8ff, 0xa8ff},   {0x10d24, 0x10f85}, {0x11070, 0x11074},
    {0x110c2, 0x110c2}, {0x11145, 0x11146}, {0x111c9, 0x111c9}, {0x111ce, 0x111cf},
    {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e}, {0x1182c, 0x11a99},
    {0x11d31, 0x13455}, {0x16f4f, 0x16f4f}, {0x16f7f, 0x16f87}, {0x16fe4, 0x16ff1},
    {0x1cf00, 0x1cf46}, {0x1e08f, 0x1e4ef}};

bool lies_in(std::span<const Span> spans, char32_t c) {
  const auto next = std::ranges::upper_bound(spans, c, {}, &Span::first);
  return next != spans.begin() && c <= std::prev(next)->last;
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
  if (c == 0x166d || c == 0x111c9) // punctuation then
    return true;
  return within(category(c), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO) &&
         !lies_in(kSinceUnicode8, c);
}

bool is_mark(char32_t c) {
  if (c == 0x1cf2 || c == 0x1cf3) // marks then
    return true;
  return within(category(c), UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME) &&
         !lies_in(kSinceUnicode9, c);
}

bool is_nonspacing_mark(char32_t c) {
  return c == 0x1734 || (category(c) == UTF8PROC_CATEGORY_MN && !lies_in(kSinceUnicode8, c));
}

bool is_control(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r')
    return false;
  const utf8proc_category_t kind = category(c);
  return (kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF ||
          kind == UTF8PROC_CATEGORY_CO) &&
         !lies_in(kSinceUnicode8, c);
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
