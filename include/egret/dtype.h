// Element types. Everything known about a type stands in one row of the table in src/ir/dtype.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace egret {

/// Element type of a tensor. Sizes in bytes: see size_of. bool is one byte holding 0 or 1. The
/// floats of 8 bits are those of P. Micikevicius et al., "FP8 Formats for Deep Learning" (2022):
/// e4m3 has no infinity and one NaN a sign.
enum class DType : std::uint8_t {
  Bool,
  I8,
  I16,
  I32,
  I64,
  U8,
  U16,
  U32,
  U64,
  F16,
  BF16,
  F32,
  F64,
  F8E4M3,
  F8E5M2
};

inline constexpr int kDTypes = 15;

std::size_t size_of(DType type) noexcept; ///< bytes of one element
const char* name_of(DType type) noexcept; ///< "bool", "i32", "bf16", "f32", "f8e4m3" ...
DType dtype_named(std::string_view name); ///< inverse of name_of; throws Error(DType)
bool is_float(DType type) noexcept;       ///< f16, bf16, f32, f64, f8e4m3, f8e5m2
bool is_low(DType type) noexcept; ///< the floats of 16 and 8 bits, whose arithmetic is done in f32
bool is_integer(DType type) noexcept; ///< i8..i64, u8..u64 (not bool)
bool is_signed(DType type) noexcept;  ///< signed integers and floats

/// The type of a binary operation on `a` and `b`, as docs/dtypes.md tabulates: the wider of one
/// category; a float wins over an integer, an integer over bool; f16 with bf16 gives f32, f8e4m3
/// with f8e5m2 gives f16; an unsigned with a signed type gives the next wider signed type, and u64,
/// which no signed type holds, gives f32.
DType promote(DType a, DType b) noexcept;

/// The type in which sums and products of `type` are accumulated: f32 for floats of 16 and 8 bits,
/// itself for all others.
DType accumulator_of(DType type) noexcept;

} // namespace egret
