#include "io/crc32c.h"

#include <array>

namespace egret::io {

namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  constexpr std::uint32_t kPolynomial = 0x82f63b78; // 0x1edc6f41 with its bits in reverse
  std::array<std::uint32_t, 256> table = {};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit)
      value = value >> 1U ^ ((value & 1U) != 0 ? kPolynomial : 0);
    table[i] = value;
  }
  return table;
}
constexpr auto kTable = make_table();

} // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept {
  std::uint32_t crc = ~std::uint32_t{0};
  for (std::byte b : bytes)
    crc = crc >> 8U ^ kTable[(crc ^ std::to_integer<std::uint32_t>(b)) & 0xffU];
  return ~crc;
}

std::uint32_t masked_crc32c(std::span<const std::byte> bytes) noexcept {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15U | crc << 17U) + 0xa282ead8U;
}

} // namespace egret::io
