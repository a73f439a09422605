// Properties of characters, as the Unicode character database gives them (by utf8proc).
#pragma once

#include <string>
#include <string_view>

namespace egret::text {

bool is_space(char32_t c);   ///< property White_Space
bool is_numeric(char32_t c); ///< Nd, Nl, No
// As tokenizers were made with them: of Unicode 8.0, marks of 9.0.
bool is_punctuation(char32_t c);     ///< P*, and the ASCII symbols
bool is_mark(char32_t c);            ///< M*
bool is_nonspacing_mark(char32_t c); ///< Mn
bool is_control(char32_t c);         ///< Cc, Cf, Co; not tab, newline, return
bool is_word(char32_t c);            ///< \w of UTS 18: Alphabetic, M*, Nd, Pc, Join_Control
bool is_cjk(char32_t c);             ///< the ideographs that BERT's tokenizer sets apart

void append_lower(std::string& out, char32_t c); ///< full mapping, without regard to context

enum class NormalForm { NFC, NFD, NFKC, NFKD };
/// Valid UTF-8 to valid UTF-8.
std::string normal_form(std::string_view text, NormalForm form);

/// The next extended grapheme cluster (UAX 29): its bytes from the start of a text that is not
/// empty.
std::size_t grapheme_bytes(std::string_view text);

} // namespace egret::text
