// Element types. Everything known about a type stands in one row of the table in src/ir/dtype.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace egret {

/// Element type of a tensor. Sizes in bytes: see size_of. bool is one byte holding 0 or 1.
enum class DType : std::uint8_t { Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64 };

inline constexpr int kDTypes = 13;

std::size_t size_of(DType type) noexcept;      ///< bytes of one element
const char* name_of(DType type) noexcept;      ///< "bool", "i32", "bf16", "f32" ...
DType dtype_named(std::string_view name);      ///< inverse of name_of; throws Error(DType)
bool is_float(DType type) noexcept;            ///< f16, bf16, f32, f64
bool is_integer(DType type) noexcept;          ///< i8..i64, u8..u64 (not bool)
bool is_signed(DType type) noexcept;           ///< signed integers and floats

/// The type of a binary operation on `a` and `b`, as docs/dtypes.md tabulates: the wider of one category; a float wins over an
/// integer, an integer over bool; f16 with bf16 gives f32; an unsigned with a signed type gives the next wider signed type (i64 at most).
DType promote(DType a, DType b) noexcept;

/// The type in which sums and products of `type` are accumulated: f32 for f16 and bf16, itself for all others.
DType accumulator_of(DType type) noexcept;

} // namespace egret
