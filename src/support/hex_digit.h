// Hexadecimal digits in texts.
#pragma once

namespace egret {

/// 0 to 15 of 0-9, a-f and A-F; -1 of others. Independent of the locale.
constexpr int hex_digit(char c) noexcept {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

} // namespace egret
