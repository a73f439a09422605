// Exponentials and logarithms in f32. The polynomials are minimax fits made by
// tools/math/coefficients.py; docs/math.md has their errors.
#include "backend/cpu_codegen/math_f32.h"
#include "backend/cpu_codegen/math_parts.h"

#include <llvm/IR/IntrinsicsX86.h>

namespace egret::backend::cpu {
namespace {

constexpr double kLog2E = 0x1.715476p+0, kLog2ELow = 0x1.4ae0cp-26; // 1/ln 2 in two parts
constexpr double kLn2 = 0x1.62e43p-1, kLn2Low = -0x1.05c61p-29; // ln 2, nearest f32 and the rest
constexpr double
    kLn2Short = 0x1.62e4p-1,
    kLn2Rest = 0x1.7f7d1cp-20; // ln 2 with 15 bits, so that multiples by an exponent are exact

// 2^n for an integer n from -126 to 127, from the bits of n.
Num power_of_two(Num n) {
  return from_bits((n + n.word(127)) << 23);
}

// Whether p * 2^whole is one instruction: AVX-512 has it, for these vectors.
bool has_scale(Num p) {
  return p.sink().isa.avx512 && (p.lanes() == 16 || p.lanes() == 8 || p.lanes() == 4);
}

// That instruction: rounded once, for any `whole`. Lanes where `kept` (a bit each) is 0 become 0.
Num scale_by_instruction(Num p, Num whole, llvm::Value* kept) {
  llvm::IRBuilder<>& b = p.b();
  if (p.lanes() == 16) // with the rounding mode that is set
    return p.with(b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                                    {p, whole, p.like(0), kept, b.getInt32(4)}));
  return p.with(b.CreateIntrinsic(p.lanes() == 8 ? llvm::Intrinsic::x86_avx512_mask_scalef_ps_256
                                                 : llvm::Intrinsic::x86_avx512_mask_scalef_ps_128,
                                  {}, {p, whole, p.like(0), kept}));
}

llvm::Value* all_lanes(Num p) {
  return llvm::ConstantInt::get(p.b().getIntNTy(p.lanes() == 16 ? 16 : 8), -1, true);
}

// p * 2^n for n from -252 to 254, rounded once even where the result is denormal: p is of moderate
// size, so only the second product can be inexact. `whole` is n as an f32.
Num scale(Num p, Num whole, Num n) {
  if (has_scale(p))
    return scale_by_instruction(p, whole, all_lanes(p));
  Num half = sar(n, 1);
  return p * power_of_two(half) * power_of_two(n - half);
}

// x = n ln 2 + r with |r| <= ln 2 / 2; n as an f32 and as an integer.
struct Reduced {
  Num r, whole, n;
};
Reduced reduce(Num x) {
  Num n(x);
  Num whole = round_small_product(x, kLog2E, &n);
  Num r = fma(whole, x.like(-kLn2), x);
  return {fma(whole, x.like(-kLn2Low), r), whole, n};
}

// e^r - 1 = r + r^2 p(r)
constexpr double kExp0 = 0x1.fffffep-2, kExp1 = 0x1.5554a4p-3, kExp2 = 0x1.555788p-5,
                 kExp3 = 0x1.123186p-7, kExp4 = 0x1.6ad6fp-10;
Num expm1_polynomial(Num r) {
  return fma(r * r, polynomial(r, {kExp0, kExp1, kExp2, kExp3, kExp4}), r);
}

// log(1+f) - f = -f^2/2 + f^3 p(f) for sqrt(1/2) <= 1+f <= sqrt(2)
Num log1p_tail(Num f) {
  Num p = polynomial(f, {0x1.555548p-2, -0x1.00007p-2, 0x1.99a54p-3, -0x1.552f18p-3, 0x1.23036cp-3,
                         -0x1.010122p-3, 0x1.f00f4p-4, -0x1.be7a68p-4, 0x1.b0242ep-5});
  return f * f * fma(f, p, f.like(-0.5));
}

// x = 2^e (1+f) with sqrt(1/2) <= 1+f < sqrt(2), for positive finite x; e as an f32. Others give
// something finite.
struct Split {
  Num e, f;
};
Split split(Num x) {
  Num tiny = x < 0x1p-126;
  Num bits = to_bits(select(tiny, x * 0x1p23, x));
  Num moved = bits - bits.word(0x3f3504f3); // the bits of sqrt(1/2): the exponent changes there
  Num mantissa = from_bits((moved & bits.word(0x7fffff)) + bits.word(0x3f3504f3));
  Num e = sar(moved, 23);
  e = select(tiny, e - e.word(23), e);
  return {x.with(x.b().CreateSIToFP(e, x.type())), mantissa - 1.0};
}

} // namespace

Num exp_f32(Num x) {
  // What rounds to 0, masked scores of attention above all, is 0 before it is scaled: an underflow
  // would cost some CPUs a hundred cycles.
  bool masked = has_scale(x) && x.lanes() >= 8; // where a mask is as many bits as there are lanes
  auto [r, whole, n] = reduce(masked ? at_most(x, 90) : clamp(x, -105, 90));
  Num p = polynomial(r, {1, 1, kExp0, kExp1, kExp2, kExp3, kExp4});
  if (!masked)
    return scale(select(x < -104.0, 0.0, p), whole, n);
  // Below the mask r and p are anything.
  llvm::Value* kept = x.b().CreateFCmpUGE(x, x.like(-104));
  return scale_by_instruction(
      p, whole, x.b().CreateBitCast(kept, x.b().getIntNTy(static_cast<unsigned>(x.lanes()))));
}

Num exp2_f32(Num x) {
  x = clamp(x, -151, 129);
  Num n(x);
  Num whole = round_small(x, &n);
  Num r = x - whole;
  Num p = polynomial(
      r, {0x1.62e43p-1, 0x1.ebfb92p-3, 0x1.c6af98p-5, 0x1.3b687p-7, 0x1.5ef97p-10, 0x1.1844bap-13});
  return scale(fma(p, r, r.like(1)), whole, n);
}

Num expm1_f32(Num y) {
  // 2^n (e^r - 1) + 2^n - 1, halved until the end so that n = 128 does not overflow early.
  auto [r, whole, n] = reduce(clamp(y, -20, 89));
  (void)whole;
  Num half = power_of_two(n - n.word(1));
  Num x = fma(half, expm1_polynomial(r), half - 0.5);
  return copysign(x + x, y);
}

Num log_f32(Num x) {
  auto [e, f] = split(x);
  Num low = fma(e, x.like(kLn2Rest), log1p_tail(f));
  return log_edges(x, fma(e, x.like(kLn2Short), f + low));
}

Num log2_f32(Num x) {
  auto [e, f] = split(x);
  Num low = fma(log1p_tail(f), x.like(kLog2E), f * kLog2ELow);
  return log_edges(x, e + fma(f, x.like(kLog2E), low));
}

Num log1p_f32(Num x) {
  Num sum = x + 1.0;
  auto [e, rounded] = split(sum);
  // (1+x) 2^-e - 1 rounded once; for large x the 1 is below the last bit of x, and 2^-e might not
  // be representable.
  Num n = x.with(x.b().CreateFPToSI(select(x < 0x1p24, e, 0.0), x.as_int_type()));
  Num factor = power_of_two(-n);
  Num f = select(x < 0x1p24, fma(x, factor, factor - 1.0), rounded);
  Num low = fma(e, x.like(kLn2Rest), log1p_tail(f));
  Num result = fma(e, x.like(kLn2Short), f + low);
  return copysign(log_edges(sum, result), x);
}

Num sigmoid_f32(Num x) {
  // 1/(1+z), or z/(1+z) for negative x, with z = e^-|x| <= 1, so that nothing overflows. Both z and
  // 1+z come from e^r - 1 with one rounding each.
  auto [r, whole, n] = reduce(at_least(-abs(x), -105));
  Num p = expm1_polynomial(r);
  Num s = scale(x.like(1), whole, n);
  Num z = fma(s, p, s);
  Num d = fma(s, p, s + 1.0);
  return select(x < 0.0, z, x.like(1)) / d;
}

Num tanh_f32(Num x) {
  // With t = 2|x| and m = e^t - 1, which keeps its relative accuracy down to 0, it is m/(m+2).
  // m = 2^n (e^r - 1) + 2^n - 1 with r = t - n ln2; where n is not 0 what the product loses without
  // a second part of ln2 is little beside 2^n - 1.
  Num t = at_most(abs(x + x), 24); // 1 from 18.1 on
  Num n(x);
  Num whole = round_small_product(t, kLog2E, &n);
  Num p = expm1_polynomial(fma(whole, x.like(-kLn2), t));
  Num s = power_of_two(n);
  Num m = fma(s, p, s - 1.0);
  return copysign(m / (m + 2.0), x);
}

Num erf_f32(Num x) {
  // 1 - erfc(b), erfc(b) = e^-(b + b q(b)) = 2^n e^r; the difference as in tanh, up to 4, where it
  // rounds to 1.
  Num b = at_most(abs(x), 4);
  Num q = polynomial(b, {0x1.06eba8p-3, 0x1.45f3p-1, 0x1.a4f8c4p-4, -0x1.39b7cep-6, -0x1.636f78p-13,
                         0x1.b74266p-10, -0x1.4e25eap-11, 0x1.f280c4p-14, -0x1.3af866p-17});
  Num y = -fma(q, b, b);
  Num n(x);
  Num whole = round_small_product(y, kLog2E, &n);
  Num p = expm1_polynomial(fma(whole, x.like(-kLn2), y));
  Num s = power_of_two(n);
  return copysign(fma(s, p, s - 1.0), x);
}

} // namespace egret::backend::cpu
