// One typed number. Equality and hashing go by bits, so -0.0 differs from 0.0 and a NaN equals
// itself.
#pragma once

#include "egret/dtype.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace egret {

/// A value of an element type, stored as the bits of that type in the low bytes of a word.
struct Scalar {
  DType dtype = DType::F32;
  std::uint64_t bits = 0;

  /// Floats: rounded once to nearest even. Integers: truncated, then saturated; NaN gives 0. bool:
  /// value != 0, so NaN gives true.
  static Scalar of(DType type, double value);
  static Scalar
  of(DType type,
     std::int64_t value); ///< integers wrap; floats round once to nearest even; bool: value != 0
  static Scalar from_bits(DType type, std::uint64_t bits);

  double as_double() const;    ///< exact for all types but large 64-bit integers
  std::int64_t as_int() const; ///< floats truncate and saturate, NaN gives 0
  std::string
  str() const; ///< shortest text that reads back to the same bits: "0.1", "-inf", "nan", "true"

  friend bool operator==(const Scalar&, const Scalar&) = default;
};

/// Reads what Scalar::str writes; throws Error(Parse).
Scalar parse_scalar(DType type, std::string_view text);

} // namespace egret
