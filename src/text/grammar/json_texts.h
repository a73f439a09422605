// Expressions for parts of JSON texts.
#pragma once

#include "text/grammar/syntax.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace egret::text::grammar {

/// Nothing, a space, or an end of line with up to 20 blanks.
NodePtr blanks();
/// A character within a string's quotes, written as it is or escaped.
NodePtr string_char();
/// The same for certain characters only.
NodePtr string_char(const std::vector<CharRange>& ranges);
/// Within quotes: any text but certain ones (which have no escapes).
NodePtr other_text(const std::vector<std::string>& texts);

NodePtr json_string(std::uint32_t least, std::uint32_t most); ///< in characters
NodePtr json_number();
/// Decimal integers of up to 18 digits from `least` to `most`.
NodePtr json_integer(std::int64_t least, std::int64_t most);
inline constexpr std::int64_t kMostInteger = 999'999'999'999'999'999;

/// The texts, as they are between a string's quotes, that a regular expression of ECMAScript
/// matches in a part or, with ^ and $, as a whole. Error(Unsupported) that begins with `where` for
/// look-around, back references, word boundaries and lazy repetition, Error(Parse) for what is
/// malformed.
NodePtr pattern_text(std::string_view pattern, const std::string& where);

} // namespace egret::text::grammar
