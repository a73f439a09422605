// The alphabet of byte-level models (GPT-2): every byte has a character that can be printed, so
// that tokens are text.
#pragma once

#include <string>
#include <string_view>

namespace egret::text {

/// The characters of the bytes of `text`.
std::string to_alphabet(std::string_view text);
void append_alphabet(std::string_view text, std::string& out);
/// The byte of a character of the alphabet; -1 for any other.
int byte_of(char32_t c);

} // namespace egret::text
