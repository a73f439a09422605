#include "egret/functional/packed.h"

#include "support/fail.h"
#include "tensor/ops.h"

namespace egret {

using namespace detail;

namespace {

void check_bits(int bits, int most, const char* who) {
  if (bits != 2 && bits != 4 && bits != (most == 8 ? 8 : 1))
    fail(ErrorKind::Value, "{}: integers of {} bits; there are those of {}", who, bits,
         most == 8 ? "2, 4 and 8" : "1, 2 and 4");
}

void check_group(int bits, std::int64_t group, const char* who) {
  if (group < 1 || group % (8 / bits) != 0)
    fail(ErrorKind::Value, "{}: groups of {}; they hold a multiple of {} integers of {} bits", who,
         group, 8 / bits, bits);
}

void require_bytes(const Tensor& a, const char* who) {
  Access::held(a, who);
  if (a.dtype() != DType::U8)
    fail(ErrorKind::DType, "{}: takes u8, got {}; convert with to(DType::U8)", who,
         name_of(a.dtype()));
  if (a.rank() < 1)
    fail(ErrorKind::Shape, "{}: got a single number; the last axis holds the values", who);
}

// The last dim as so many groups of `length`.
Shape grouped(const Tensor& a, std::int64_t length, const char* who) {
  Shape shape = a.shape();
  const Expr last = shape.back();
  if (!(floormod(last, length) == Expr(0)))
    fail(ErrorKind::Shape, "{}: the last dim of {} is no multiple of {}", who, shape_of(a), length);
  shape.back() = floordiv(last, length);
  shape.push_back(length);
  return shape;
}

Shape joined(const Shape& grouped) {
  Shape shape(grouped.begin(), grouped.end() - 1);
  shape.back() = shape.back() * grouped.back();
  return shape;
}

// 0, bits, 2 bits ..: how far the values of a byte stand from its end.
Tensor places(int bits) {
  return iota(8 / bits, DType::U8) * bits;
}

} // namespace

Tensor pack_bits(const Operand& values, int bits) {
  check_bits(bits, 4, "pack_bits");
  require_bytes(values, "pack_bits");
  const Tensor split = reshape(values & ((1 << bits) - 1), grouped(values, 8 / bits, "pack_bits"));
  return sum((split << places(bits)).to(DType::I32), -1).to(DType::U8);
}

Tensor unpack_bits(const Operand& packed, int bits) {
  check_bits(bits, 4, "unpack_bits");
  require_bytes(packed, "unpack_bits");
  Shape shape = packed.shape();
  shape.push_back(8 / bits);
  return reshape((unsqueeze(packed, -1) >> places(bits)) & ((1 << bits) - 1), joined(shape));
}

Quantized quantize(const Operand& a, int bits, std::int64_t group) {
  check_bits(bits, 8, "quantize");
  Access::held(a, "quantize");
  require_float(a, "quantize");
  check_group(bits, group, "quantize");
  if (a.rank() < 1)
    fail(ErrorKind::Shape, "quantize: got a single number; the last axis holds the groups");
  const Shape split = grouped(a, group, "quantize");
  const std::int64_t zero = std::int64_t{1} << (bits - 1);
  const Tensor wide = widened(reshape(a, split));
  const Tensor scale = (max(abs(wide), -1) / (zero - 1)).to(a.dtype());
  const Tensor steps = wide / unsqueeze(scale.to(wide.dtype()), -1);
  const Tensor whole = where(isnan(steps), 0, clamp(round(steps), 1 - zero, zero - 1)) + zero;
  const Tensor values = reshape(whole.to(DType::U8), joined(split));
  return {bits == 8 ? values : pack_bits(values, bits), scale, bits, group};
}

Tensor dequantize(const Quantized& q) {
  check_bits(q.bits, 8, "dequantize");
  check_group(q.bits, q.group, "dequantize");
  require_bytes(q.packed, "dequantize");
  Access::held(q.scale, "dequantize");
  const Tensor values = q.bits == 8 ? q.packed : unpack_bits(q.packed, q.bits);
  const Shape split = grouped(values, q.group, "dequantize");
  if (q.scale.shape() != Shape(split.begin(), split.end() - 1))
    fail(ErrorKind::Shape, "dequantize: scales {} do not fit {} in groups of {}; they must be {}",
         shape_of(q.scale), shape_of(values), q.group,
         to_string(Shape(split.begin(), split.end() - 1)));
  const std::int64_t zero = std::int64_t{1} << (q.bits - 1);
  const Tensor steps = reshape(values, split).to(DType::I32) - zero;
  const Tensor wide = widened(q.scale);
  return reshape((steps.to(wide.dtype()) * unsqueeze(wide, -1)).to(q.scale.dtype()), joined(split));
}

} // namespace egret
