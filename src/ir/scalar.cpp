#include "egret/scalar.h"

#include "ir/convert.h"
#include "support/fail.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

namespace egret {

namespace {

std::uint64_t low_bits(DType type, std::uint64_t bits) noexcept {
  const std::size_t size = size_of(type);
  return size == 8 ? bits : bits & ((std::uint64_t{1} << (8 * size)) - 1);
}

std::uint64_t float_bits(DType type, double value) noexcept {
  switch (type) {
  case DType::F16:
    return f16_from_f64(value);
  case DType::BF16:
    return bf16_from_f64(value);
  case DType::F8E4M3:
    return f8e4m3_from_f64(value);
  case DType::F8E5M2:
    return f8e5m2_from_f64(value);
  case DType::F32:
    return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  default:
    return std::bit_cast<std::uint64_t>(value);
  }
}

/// `value` as an f64 whose last bit is set when bits were lost, so that rounding it once more to a
/// narrower float is right.
double rounded_to_odd(std::int64_t value) noexcept {
  const bool negative = value < 0;
  std::uint64_t size = negative ? ~static_cast<std::uint64_t>(value) + 1 : value;
  const int surplus = 64 - std::countl_zero(size) - 53;
  if (surplus > 0) {
    const std::uint64_t lost = size & ((std::uint64_t{1} << surplus) - 1);
    size = size >> surplus << surplus | (lost != 0 ? std::uint64_t{1} << surplus : 0);
  }
  const auto wide = static_cast<double>(size);
  return negative ? -wide : wide;
}

/// Truncates; what does not fit goes to the nearest end of the type; NaN gives 0.
std::uint64_t saturated(DType type, double value) noexcept {
  if (std::isnan(value))
    return 0;
  const int width = static_cast<int>(8 * size_of(type));
  if (is_signed(type)) {
    const double end = std::ldexp(1.0, width - 1);
    const auto largest = static_cast<std::int64_t>(~std::uint64_t{0} >> (65 - width));
    if (value >= end)
      return static_cast<std::uint64_t>(largest);
    if (value <= -end)
      return low_bits(type, static_cast<std::uint64_t>(-largest - 1));
    return low_bits(type, static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
  }
  if (value >= std::ldexp(1.0, width))
    return ~std::uint64_t{0} >> (64 - width);
  return value <= 0 ? 0 : static_cast<std::uint64_t>(value);
}

std::uint64_t quiet_nan(DType type) noexcept {
  switch (type) {
  case DType::F16:
    return 0x7e00;
  case DType::BF16:
    return 0x7fc0;
  case DType::F8E4M3:
    return 0x7f;
  case DType::F8E5M2:
    return 0x7e;
  case DType::F32:
    return 0x7fc00000;
  default:
    return 0x7ff8000000000000;
  }
}

template <class T>
std::string shortest(T value) {
  std::array<char, 64> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

/// The fewest digits that read back to the same 16 bits.
std::string shortest_small(const Scalar& scalar) {
  const double value = scalar.as_double();
  std::array<char, 64> text;
  for (int digits = 1;; ++digits) {
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                   std::chars_format::general, digits)
                         .ptr;
    double back = 0;
    std::from_chars(text.data(), end, back);
    if (digits == 17 || float_bits(scalar.dtype, back) == scalar.bits)
      return {text.data(), end};
  }
}

[[noreturn]] void unreadable(DType type, std::string_view text, std::string_view why) {
  fail(ErrorKind::Parse, "scalar: cannot read '{}' as {}: {}", text.substr(0, 40), name_of(type),
       why);
}

template <class T>
T number_in(DType type, std::string_view text, int base = 10) {
  T value{};
  const char* const end = text.data() + text.size();
  std::from_chars_result result;
  if constexpr (std::is_floating_point_v<T>)
    result = std::from_chars(text.data(), end, value);
  else
    result = std::from_chars(text.data(), end, value, base);
  if (result.ec == std::errc::result_out_of_range)
    unreadable(type, text, "out of range");
  if (result.ec != std::errc{} || result.ptr != end)
    unreadable(type, text, "not a number");
  return value;
}

Scalar parse_float(DType type, std::string_view text) {
  const std::string_view nan = "nan(0x";
  if (text == "nan")
    return Scalar::from_bits(type, quiet_nan(type));
  if (text.starts_with(nan) && text.ends_with(')')) {
    const auto digits = text.substr(nan.size(), text.size() - nan.size() - 1);
    const auto bits = number_in<std::uint64_t>(type, digits, 16);
    const Scalar scalar = Scalar::from_bits(type, bits);
    if (low_bits(type, bits) != bits || !std::isnan(scalar.as_double()))
      unreadable(type, text, "these are not the bits of a NaN");
    return scalar;
  }
  if (text.find_first_not_of("0123456789+-.eE") != std::string_view::npos && text != "inf" &&
      text != "-inf")
    unreadable(type, text, "not a number");
  if (type == DType::F32)
    return Scalar::of(type, static_cast<double>(number_in<float>(type, text)));
  const auto value = number_in<double>(type, text);
  const Scalar scalar = Scalar::of(type, value);
  if (std::isfinite(value) && !std::isfinite(scalar.as_double()))
    unreadable(type, text, "out of range");
  return scalar;
}

} // namespace

Scalar Scalar::of(DType type, double value) {
  if (type == DType::Bool)
    return {type, value != 0 ? std::uint64_t{1} : 0};
  return {type, is_float(type) ? float_bits(type, value) : saturated(type, value)};
}

Scalar Scalar::of(DType type, std::int64_t value) {
  if (type == DType::Bool)
    return {type, value != 0 ? std::uint64_t{1} : 0};
  if (type == DType::F64)
    return {type, std::bit_cast<std::uint64_t>(static_cast<double>(value))};
  if (is_float(type))
    return {type, float_bits(type, rounded_to_odd(value))};
  return {type, low_bits(type, static_cast<std::uint64_t>(value))};
}

Scalar Scalar::from_bits(DType type, std::uint64_t bits) {
  if (type == DType::Bool)
    return {type, (bits & 0xff) != 0 ? std::uint64_t{1} : 0};
  return {type, low_bits(type, bits)};
}

double Scalar::as_double() const {
  switch (dtype) {
  case DType::F16:
    return static_cast<double>(f32_from_f16(static_cast<std::uint16_t>(bits)));
  case DType::BF16:
    return static_cast<double>(f32_from_bf16(static_cast<std::uint16_t>(bits)));
  case DType::F8E4M3:
    return static_cast<double>(f32_from_f8e4m3(static_cast<std::uint8_t>(bits)));
  case DType::F8E5M2:
    return static_cast<double>(f32_from_f8e5m2(static_cast<std::uint8_t>(bits)));
  case DType::F32:
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  case DType::F64:
    return std::bit_cast<double>(bits);
  case DType::U64:
    return static_cast<double>(bits);
  default:
    return static_cast<double>(as_int());
  }
}

std::int64_t Scalar::as_int() const {
  if (is_float(dtype))
    return static_cast<std::int64_t>(saturated(DType::I64, as_double()));
  if (!is_signed(dtype))
    return static_cast<std::int64_t>(bits);
  const int unused = static_cast<int>(64 - 8 * size_of(dtype));
  return static_cast<std::int64_t>(bits << unused) >> unused;
}

std::string Scalar::str() const {
  if (dtype == DType::Bool)
    return bits != 0 ? "true" : "false";
  if (dtype == DType::U64)
    return shortest(bits);
  if (!is_float(dtype))
    return shortest(as_int());
  const double value = as_double();
  if (std::isnan(value))
    return bits == quiet_nan(dtype) ? "nan" : fmt::format("nan(0x{:x})", bits);
  if (dtype == DType::F64)
    return shortest(value);
  if (dtype == DType::F32 || std::isinf(value))
    return shortest(static_cast<float>(value));
  return shortest_small(*this);
}

Scalar parse_scalar(DType type, std::string_view text) {
  if (type == DType::Bool) {
    if (text != "true" && text != "false")
      unreadable(type, text, "it is 'true' or 'false'");
    return {type, text == "true" ? std::uint64_t{1} : 0};
  }
  if (is_float(type))
    return parse_float(type, text);
  if (type == DType::U64)
    return {type, number_in<std::uint64_t>(type, text)};
  const auto value = number_in<std::int64_t>(type, text);
  const Scalar scalar = Scalar::of(type, value);
  if (scalar.as_int() != value)
    unreadable(type, text, "out of range");
  return scalar;
}

} // namespace egret
