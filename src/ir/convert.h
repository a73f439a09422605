// Conversions between the float formats, rounding to nearest, ties to even. A NaN stays a NaN of
// the same sign and becomes quiet.
#pragma once

#include <bit>
#include <cstdint>

namespace egret {

namespace convert_detail {

/// The bits of a binary float of 1 + kExponent + kMantissa bits nearest to `value`. One rounding,
/// straight from f64. kFinite: the format has no infinity, and all bits set are its NaN, which is
/// what too large numbers become.
template <int kExponent, int kMantissa, bool kFinite = false>
constexpr std::uint16_t narrow(double value) noexcept {
  constexpr std::uint64_t kTop =
      (std::uint64_t{1} << kExponent) - 1; // exponent of infinities and NaNs
  constexpr std::uint64_t kNaN = (std::uint64_t{1} << (kExponent + kMantissa)) - 1; // if kFinite
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr int kCut = 52 - kMantissa;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t sign = (bits >> 63) << (kExponent + kMantissa);
  const int exponent = static_cast<int>((bits >> 52) & 0x7ff);
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  const auto rounded = [](std::uint64_t number, int cut) {
    const std::uint64_t half = std::uint64_t{1} << (cut - 1);
    return (number + (half - 1) + ((number >> cut) & 1)) >> cut;
  };
  if (exponent == 0x7ff) {
    if (kFinite)
      return static_cast<std::uint16_t>(sign | kNaN);
    const std::uint64_t quiet = std::uint64_t{1} << (kMantissa - 1);
    const std::uint64_t payload = mantissa == 0 ? 0 : quiet | (mantissa >> kCut);
    return static_cast<std::uint16_t>(sign | kTop << kMantissa | payload);
  }
  const int target = exponent - 1023 + kBias;
  if (target >= static_cast<int>(kTop) + kFinite)
    return static_cast<std::uint16_t>(sign | (kFinite ? kNaN : kTop << kMantissa));
  if (target >= 1) { // a carry out of the mantissa rightly goes into the exponent
    std::uint64_t size = rounded(static_cast<std::uint64_t>(target) << 52 | mantissa, kCut);
    if (kFinite && size > kNaN)
      size = kNaN;
    return static_cast<std::uint16_t>(sign | size);
  }
  const int cut = kCut + 1 - target;
  if (exponent == 0 || cut > 53)
    return static_cast<std::uint16_t>(sign);
  return static_cast<std::uint16_t>(sign | rounded(std::uint64_t{1} << 52 | mantissa, cut));
}

} // namespace convert_detail

constexpr std::uint16_t f16_from_f64(double value) noexcept {
  return convert_detail::narrow<5, 10>(value);
}
constexpr std::uint16_t bf16_from_f64(double value) noexcept {
  return convert_detail::narrow<8, 7>(value);
}
constexpr std::uint8_t f8e4m3_from_f64(double value) noexcept {
  return static_cast<std::uint8_t>(convert_detail::narrow<4, 3, true>(value));
}
constexpr std::uint8_t f8e5m2_from_f64(double value) noexcept {
  return static_cast<std::uint8_t>(convert_detail::narrow<5, 2>(value));
}
constexpr std::uint16_t f16_from_f32(float value) noexcept {
  return f16_from_f64(value);
}

constexpr std::uint16_t bf16_from_f32(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

constexpr float f32_from_bf16(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

constexpr float f32_from_f16(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1f;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f)
    return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0)
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float size = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -size : size;
}

constexpr float f32_from_f8e5m2(std::uint8_t bits) noexcept { // the upper half of an f16
  return f32_from_f16(static_cast<std::uint16_t>(bits << 8));
}

constexpr float f32_from_f8e4m3(std::uint8_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 24;
  if ((bits & 0x7fu) == 0x7fu)
    return std::bit_cast<float>(sign | 0x7fc00000u);
  // An f16 with these exponent and mantissa bits is 2^8 times smaller.
  const float size = f32_from_f16(static_cast<std::uint16_t>((bits & 0x7fu) << 7)) * 0x1p8f;
  return sign != 0 ? -size : size;
}

} // namespace egret
