#include "egret/dtype.h"

#include "support/fail.h"

#include <algorithm>
#include <array>

namespace egret {

namespace {

enum class Category : std::uint8_t { Bool, Unsigned, Signed, Float };

struct Row {
  DType type;
  const char* name;
  std::size_t size;
  Category category;
  DType accumulator;
};

constexpr std::array<Row, kDTypes> kRows{{
    {DType::Bool, "bool", 1, Category::Bool, DType::Bool},
    {DType::I8, "i8", 1, Category::Signed, DType::I8},
    {DType::I16, "i16", 2, Category::Signed, DType::I16},
    {DType::I32, "i32", 4, Category::Signed, DType::I32},
    {DType::I64, "i64", 8, Category::Signed, DType::I64},
    {DType::U8, "u8", 1, Category::Unsigned, DType::U8},
    {DType::U16, "u16", 2, Category::Unsigned, DType::U16},
    {DType::U32, "u32", 4, Category::Unsigned, DType::U32},
    {DType::U64, "u64", 8, Category::Unsigned, DType::U64},
    {DType::F16, "f16", 2, Category::Float, DType::F32},
    {DType::BF16, "bf16", 2, Category::Float, DType::F32},
    {DType::F32, "f32", 4, Category::Float, DType::F32},
    {DType::F64, "f64", 8, Category::Float, DType::F64},
    {DType::F8E4M3, "f8e4m3", 1, Category::Float, DType::F32},
    {DType::F8E5M2, "f8e5m2", 1, Category::Float, DType::F32},
}};

constexpr bool rows_in_order() {
  for (std::size_t i = 0; i < kRows.size(); ++i)
    if (static_cast<std::size_t>(kRows[i].type) != i)
      return false;
  return true;
}
static_assert(rows_in_order());

constexpr const Row& row(DType type) noexcept {
  return kRows[static_cast<std::size_t>(type)];
}

DType signed_of_size(std::size_t size) noexcept {
  for (const Row& r : kRows)
    if (r.category == Category::Signed && r.size >= size)
      return r.type;
  return DType::I64;
}

} // namespace

std::size_t size_of(DType type) noexcept {
  return row(type).size;
}
const char* name_of(DType type) noexcept {
  return row(type).name;
}

DType dtype_named(std::string_view name) {
  for (const Row& r : kRows)
    if (name == r.name)
      return r.type;
  std::string known;
  for (const Row& r : kRows)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", r.name);
  fail(ErrorKind::DType, "dtype: '{}' is not an element type; there are {}", name, known);
}

bool is_float(DType type) noexcept {
  return row(type).category == Category::Float;
}

bool is_low(DType type) noexcept {
  return is_float(type) && row(type).size < 4;
}

bool is_integer(DType type) noexcept {
  return row(type).category == Category::Signed || row(type).category == Category::Unsigned;
}

bool is_signed(DType type) noexcept {
  return row(type).category == Category::Signed || row(type).category == Category::Float;
}

DType promote(DType a, DType b) noexcept {
  if (a == b)
    return a;
  const Row &x = row(a), &y = row(b);
  if (x.category == y.category) {
    if (x.size == y.size) // f16 with bf16, or the two of 8 bits: neither holds the other
      return x.size == 1 ? DType::F16 : DType::F32;
    return x.size > y.size ? a : b;
  }
  // Categories stand in the order in which they win, but for the two kinds of integers.
  const Row& low = x.category < y.category ? x : y;
  const Row& high = x.category < y.category ? y : x;
  if (low.category == Category::Unsigned && high.category == Category::Signed)
    return low.size == 8 ? DType::F32 : signed_of_size(std::max(2 * low.size, high.size));
  return high.type;
}

DType accumulator_of(DType type) noexcept {
  return row(type).accumulator;
}

} // namespace egret
