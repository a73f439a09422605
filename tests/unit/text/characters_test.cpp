// Classes of characters are those of the tables that the originals have (Unicode 8.0, marks 9.0).
#include "text/characters.h"

#include <gtest/gtest.h>

namespace egret::text {
namespace {

TEST(Characters, PunctuationIsThatOfUnicode8) {
  for (const char32_t c : {U'!', U'`', U'\u00bf', U'\u061b', U'\u061e', U'\u166d', U'\u2e42',
                           U'\U000111c9', U'\U000115c1'})
    EXPECT_TRUE(is_punctuation(c)) << std::uint32_t{c};
  // 14.0, 11.0, 9.0, 10.0, 14.0; a symbol; a letter
  for (const char32_t c : {U'\u061d', U'\u09fd', U'\u2e43', U'\u2e49', U'\u2e5d', U'\u00a9', U'a'})
    EXPECT_FALSE(is_punctuation(c)) << std::uint32_t{c};
}

TEST(Characters, MarksAndControlsAreThoseOfTheOriginals) {
  for (const char32_t c : {U'\u0301', U'\u08e3', U'\u1734', U'\u20dc'})
    EXPECT_TRUE(is_nonspacing_mark(c)) << std::uint32_t{c};
  for (const char32_t c : {U'\u08d4', U'\u0898', U'\u1df6', U'\U0001e000'})
    EXPECT_FALSE(is_nonspacing_mark(c)) << std::uint32_t{c};
  for (const char32_t c : {U'\u0301', U'\u0903', U'\u08d4', U'\U0001e000', U'\u1cf2'})
    EXPECT_TRUE(is_mark(c)) << std::uint32_t{c};
  for (const char32_t c : {U'\u0898', U'\u08d3', U'\u0c3c', U'\U0001e4ec'})
    EXPECT_FALSE(is_mark(c)) << std::uint32_t{c};
  for (const char32_t c : {U'\u061c', U'\u200b', U'\ufeff', U'\ue000', U'\x7f'})
    EXPECT_TRUE(is_control(c)) << std::uint32_t{c};
  for (const char32_t c : {U'\u08e2', U'\u0890', U'\U000110cd', U'\t'})
    EXPECT_FALSE(is_control(c)) << std::uint32_t{c};
}

} // namespace
} // namespace egret::text
