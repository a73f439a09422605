// Conversions between element types, bit for bit as the op table defines cast.
#include "backend/cpu_codegen/ops.h"

#include <cmath>

namespace egret::backend::cpu {
namespace {

unsigned bits_of(DType type) {
  return type == DType::Bool ? 1 : static_cast<unsigned>(8 * size_of(type));
}

// A float format of fewer bits than f32, by its fields.
struct Format {
  unsigned exponent, mantissa; // bits of each
  bool finite;                 // no infinity; all bits set are NaN

  unsigned bits() const { return 1 + exponent + mantissa; }
  unsigned bias() const { return (1u << (exponent - 1)) - 1; }
  unsigned magnitude() const { return (1u << (exponent + mantissa)) - 1; } // mask
  unsigned infinity() const { return ((1u << exponent) - 1) << mantissa; }
  /// The bits of an f32: the smallest normal number of the format, and the first (finite: the last)
  /// that does not round to infinity (NaN).
  unsigned smallest() const { return (127 + 1 - bias()) << 23; }
  unsigned limit() const {
    const unsigned top = (127 + (1u << exponent) - 2 - bias() + finite) << 23;
    const unsigned ones = (1u << (mantissa + 1)) - 1; // half a unit beyond the largest mantissa
    return top + ((finite ? ones - 2 : ones) << (22 - mantissa));
  }
};

Format format_of(DType type) {
  if (type == DType::F16)
    return {5, 10, false};
  return type == DType::F8E4M3 ? Format{4, 3, true} : Format{5, 2, false};
}

Num to_f32_by_integers(Num x, const Format& f) {
  const unsigned shift = 23 - f.mantissa;
  Num wide = int_to(x, 32, false);
  Num sign = (wide & wide.word(1u << (f.bits() - 1))) << (32 - f.bits());
  Num magnitude = (wide & wide.word(f.magnitude())) << shift;
  Num exponent = magnitude & wide.word(f.infinity() << shift);
  Num normal = magnitude + wide.word((127 - f.bias()) << 23);
  // A denormal's bits behind the exponent of the smallest normal number, which is taken away again.
  Num small = to_bits(from_bits(magnitude + wide.word(f.smallest())) -
                      std::ldexp(1.0, 1 - static_cast<int>(f.bias())));
  Num result = select(exponent == wide.word(0), small, normal);
  if (f.finite)
    return from_bits(
        select(magnitude == wide.word(f.magnitude() << shift), wide.word(0x7fc00000), result) |
        sign);
  Num special = magnitude + wide.word((255 - (f.infinity() >> f.mantissa)) << 23);
  result = select(exponent == wide.word(f.infinity() << shift), special, result);
  Num quiet =
      select(magnitude > wide.word(f.infinity() << shift), wide.word(1u << 22), wide.word(0));
  return from_bits(result | quiet | sign);
}

Num from_f32_by_integers(Num x, const Format& f) {
  const unsigned shift = 23 - f.mantissa;
  Num bits = to_bits(x);
  Num sign = (bits >> (32 - f.bits())) & bits.word(1u << (f.bits() - 1));
  Num magnitude = bits & bits.word(0x7fffffff);
  Num odd = (magnitude >> shift) & bits.word(1);
  Num normal =
      (magnitude + odd + bits.word((1u << (shift - 1)) - 1) - bits.word((127 - f.bias()) << 23)) >>
      shift;
  // A number whose unit is that of the format's denormals: the addition rounds.
  const int power = 24 - static_cast<int>(f.bias() + f.mantissa);
  Num small = to_bits(from_bits(magnitude) + std::ldexp(1.0, power)) -
              bits.word(static_cast<std::uint64_t>(127 + power) << 23);
  Num result = select(magnitude < bits.word(f.smallest()), small, normal);
  if (f.finite)
    result = select(magnitude > bits.word(f.limit()), bits.word(f.magnitude()), result);
  else {
    result = select(magnitude >= bits.word(f.limit()), bits.word(f.infinity()), result);
    result = select(magnitude > bits.word(0x7f800000),
                    bits.word(f.infinity() | 1u << (f.mantissa - 1)), result);
  }
  return int_to(result | sign, f.bits(), false);
}

// The hardware's f32 -> bf16 instruction flushes denormals, so that integers do it everywhere.
Num f32_to_bf16(Num x) {
  Num bits = to_bits(x);
  Num rounded = bits + bits.word(0x7fff) + ((bits >> 16) & bits.word(1));
  Num quiet = bits | bits.word(1u << 22);
  return int_to(select(is_nan(x), quiet, rounded) >> 16, 16, false);
}

// A 64-bit integer as a double, with the last bit set when it is not exact.
Num int64_to_f64_odd(Num a, bool is_signed) {
  Num shifted = is_signed ? sar(a, 11) : a >> 11;
  Num sticky = int_to((a & a.word(0x7ff)) != a.word(0), 64, false);
  Num reduced = shifted | sticky;
  llvm::Type* f64 = a.shaped(a.b().getDoubleTy());
  auto as_float = [&](Num n) {
    return a.with(is_signed ? a.b().CreateSIToFP(n, f64) : a.b().CreateUIToFP(n, f64));
  };
  Num top = a >> 53;
  Num is_small =
      is_signed ? (top == a.word(0)) | (sar(a, 53) == a.word(~std::uint64_t{0})) : top == a.word(0);
  return select(is_small, as_float(a), as_float(reduced) * 2048.0);
}

Num int_to_float(Num a, DType from, DType to) {
  bool is_sig = is_signed(from);
  if (is_low(to)) {
    if (bits_of(from) <= 16) // exact in f32
      return narrow(int_to_float(a, from, DType::F32), to);
    Num wide =
        bits_of(from) == 64 ? int64_to_f64_odd(a, is_sig) : int_to_float(a, from, DType::F64);
    return narrow(to_f32_odd(wide), to);
  }
  llvm::Type* type = a.shaped(to == DType::F32 ? a.b().getFloatTy() : a.b().getDoubleTy());
  return a.with(is_sig ? a.b().CreateSIToFP(a, type) : a.b().CreateUIToFP(a, type));
}

Num float_to_int(Num x, DType to) {
  unsigned bits = bits_of(to);
  bool is_sig = is_signed(to);
  double high = std::ldexp(1.0, static_cast<int>(is_sig ? bits - 1 : bits)); // first value beyond
  double low = is_sig ? -high : 0.0;
  Num too_high = x >= high;
  Num too_low = x < low;
  Num unfit = too_high | too_low | is_nan(x);
  Num safe = select(unfit, 0.0, x);
  llvm::Type* type = x.shaped(x.b().getIntNTy(bits));
  Num n = x.with(is_sig ? x.b().CreateFPToSI(safe, type) : x.b().CreateFPToUI(safe, type));
  std::uint64_t top =
      is_sig ? (std::uint64_t{1} << (bits - 1)) - 1 : ~std::uint64_t{0} >> (64 - bits);
  n = select(too_high, n.word(top), n);
  return is_sig ? select(too_low, n.word(std::uint64_t{1} << (bits - 1)), n) : n;
}

} // namespace

Num widen(Num a, DType from) {
  if (from == DType::BF16)
    return from_bits(int_to(a, 32, false) << 16);
  if (from != DType::F16 || !a.sink().isa.f16c)
    return to_f32_by_integers(a, format_of(from));
  llvm::Value* half = a.b().CreateBitCast(a, a.shaped(a.b().getHalfTy()));
  return a.with(a.b().CreateFPExt(half, a.shaped(a.b().getFloatTy())));
}

Num narrow(Num a, DType to) {
  if (to == DType::BF16)
    return f32_to_bf16(a);
  if (to != DType::F16 || !a.sink().isa.f16c)
    return from_f32_by_integers(a, format_of(to));
  llvm::Value* half = a.b().CreateFPTrunc(a, a.shaped(a.b().getHalfTy()));
  return a.with(a.b().CreateBitCast(half, a.shaped(a.b().getInt16Ty())));
}

Num cut_to_bf16(Num a) {
  return int_to(to_bits(a) >> 16, 16, false);
}

Num convert(Num a, DType from, DType to) {
  if (from == to)
    return a;
  if (is_low(from)) {
    if (to == DType::Bool)
      return (a & a.word((std::uint64_t{1} << (bits_of(from) - 1)) - 1)) != a.word(0);
    return convert(widen(a, from), DType::F32, to);
  }
  if (to == DType::Bool)
    return a != a.like(0);
  if (is_float(from)) {
    if (is_low(to))
      return narrow(from == DType::F64 ? to_f32_odd(a) : a, to);
    if (is_float(to))
      return to == DType::F64 ? to_f64(a) : to_f32(a);
    return float_to_int(a, to);
  }
  if (is_float(to))
    return from == DType::Bool ? convert(int_to(a, 8, false), DType::U8, to)
                               : int_to_float(a, from, to);
  return int_to(a, bits_of(to), is_signed(from));
}

} // namespace egret::backend::cpu
