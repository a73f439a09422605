// Power and floor modulo of f32, computed in f64: the logarithm then has bits to spare for any
// exponent.
#include "backend/cpu_codegen/math_f32.h"
#include "backend/cpu_codegen/math_parts.h"
#include "backend/cpu_codegen/ops.h"

#include <limits>

namespace egret::backend::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// log2 of a positive finite f64 that was an f32, so never denormal.
Num log2_wide(Num x) {
  Num bits = to_bits(x);
  Num root = bits.word(0x3fe6a09e667f3bcd); // of 1/2
  Num moved = bits - root;
  Num m = from_bits((moved & bits.word(0xfffffffffffff)) + root);
  // The exponent as a double without a 64-bit conversion: it is added to the bits of 1.5 * 2^52.
  Num magic = bits.word(0x4338000000000000);
  Num e = from_bits(sar(moved, 52) + magic) - from_bits(magic);
  Num s = (m - 1.0) / (m + 1.0);
  Num p = polynomial(s * s, {0x1.71547652b82ffp+1, 0x1.ec709dc39ccb4p-1, 0x1.2776c5167f1b1p-1,
                             0x1.a6175698bae8fp-2, 0x1.484fa5b44818bp-2, 0x1.0bb851e2a98a4p-2,
                             0x1.f17acbcf6808fp-3});
  return fma(p, s, e);
}

// 2^t for |t| <= 1000.
Num exp2_wide(Num t) {
  Num n(t);
  Num r = t - round_small(t, &n);
  Num p = polynomial(r, {0x1.ffffffffa4d75p-1, 0x1.62e42ffd517c6p-1, 0x1.ebfbe0b0eba5cp-3,
                         0x1.c6b086100d191p-5, 0x1.3b29b85880f5ap-7, 0x1.5d85096277d02p-10,
                         0x1.448f34e734045p-13, 0x1.059a364ecc64bp-16});
  return p * from_bits((n + n.word(1023)) << 52);
}

} // namespace

Num power_f32(Num x, Num y) {
  Num size = abs(x);
  Num l = log2_wide(to_f64(size));
  l = select(to_f64(size) == 0.0, -kInfinity, l);
  l = select(to_f64(size) == kInfinity, kInfinity, l);
  Num t = l * to_f64(y);
  t = select(t > 300.0, 300.0, t);
  t = select(t < -300.0, -300.0, t);
  Num result = to_f32(exp2_wide(t));
  // 1 to an infinite power is 1; so far it is 0 * inf.
  Num one = x.like(1);
  result = select((size == one) & (abs(y) == x.like(kInfinity)), one, result);
  result = select(is_nan(x) | is_nan(y), x.like(std::numeric_limits<double>::quiet_NaN()), result);
  Num negative = to_bits(x) < to_bits(x).word(0);
  Num half = y * 0.5;
  Num whole = trunc(y) == y;
  Num odd = whole & (trunc(half) != half);
  result = select(negative & odd, -result, result);
  // A negative number has no fractional power; -0 and -inf have.
  Num fraction = (x < 0.0) & (x > -kInfinity) & (trunc(y) != y);
  result = select(fraction, std::numeric_limits<double>::quiet_NaN(), result);
  return select((x == one) | (y == x.like(0)), one, result);
}

Num floor_mod_f32(Num x, Num y) {
  // While the quotient is below 2^28 it has 53 bits to be told from an integer, its product with y
  // is exact in f64, and so is the rest.
  Num a = to_f64(x), b = to_f64(y);
  Num q = trunc(a / b);
  Num rest = a - q * b;
  rest = select((rest < 0.0) ^ (b < 0.0), rest + b, rest);
  Num result = to_f32(select(a == q * b, copysign(b.like(0), b), rest));
  Num usual = (abs(q) < 0x1p28) & (abs(b) < kInfinity);
  return where_rare(~usual, result, [&] { return to_f32(call_library("egret_mod_f64", a, {b})); });
}

} // namespace egret::backend::cpu
