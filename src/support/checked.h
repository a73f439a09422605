// Arithmetic that notices overflow, for sizes that come from files, shapes and users.
#pragma once

#include "support/fail.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

namespace egret {

/// a + b; throws Error(kind) naming `what` when it does not fit the type.
template <class T>
T checked_add(T a, T b, std::string_view what, ErrorKind kind = ErrorKind::Value) {
  static_assert(std::is_integral_v<T>);
  T r;
  if (__builtin_add_overflow(a, b, &r))
    fail(kind, "{}: {} + {} overflows {} bits", what, a, b, 8 * sizeof(T));
  return r;
}

/// a - b; throws as checked_add does.
template <class T>
T checked_sub(T a, T b, std::string_view what, ErrorKind kind = ErrorKind::Value) {
  static_assert(std::is_integral_v<T>);
  T r;
  if (__builtin_sub_overflow(a, b, &r))
    fail(kind, "{}: {} - {} overflows {} bits", what, a, b, 8 * sizeof(T));
  return r;
}

/// a * b; throws as checked_add does.
template <class T>
T checked_mul(T a, T b, std::string_view what, ErrorKind kind = ErrorKind::Value) {
  static_assert(std::is_integral_v<T>);
  T r;
  if (__builtin_mul_overflow(a, b, &r))
    fail(kind, "{}: {} * {} overflows {} bits", what, a, b, 8 * sizeof(T));
  return r;
}

/// `value` as another integer type; throws Error(kind) naming `what` when it does not fit.
template <class To, class From>
To checked_cast(From value, std::string_view what, ErrorKind kind = ErrorKind::Value) {
  static_assert(std::is_integral_v<To> && std::is_integral_v<From>);
  To r = static_cast<To>(value);
  if (static_cast<From>(r) != value || (r < To{}) != (value < From{}))
    fail(kind, "{}: {} does not fit {} bits", what, value, 8 * sizeof(To));
  return r;
}

/// `value` rounded up to a multiple of `multiple` (a positive number).
template <class T>
constexpr T round_up(T value, T multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// a / b rounded up, of numbers that are not negative.
constexpr std::int64_t ceil_quotient(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

} // namespace egret
