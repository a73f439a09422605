// Functions in f64. The polynomials are minimax fits made by tools/math/coefficients.py, or series
// where that costs one term more; docs/math.md has their errors. Numbers of 64 bits are shifted
// logically only: before AVX-512 there is no arithmetic shift of them, and no conversion to f64.
#include "backend/cpu_codegen/math_f64.h"

#include "backend/cpu_codegen/math_parts.h"

#include <cmath>

namespace egret::backend::cpu {
namespace {

constexpr double kLog2E64 = 0x1.71547652b82fep+0;
constexpr double kLog2EShort64 = 0x1.715470p+0, kLog2ERest64 = 0x1.94ae0bf85ddf4p-22;
constexpr double kLn264 = 0x1.62e42fefa39efp-1;
// ln 2 with 33 bits, so that multiples by an exponent are exact, and the rest.
constexpr double kLn2Short64 = 0x1.62e42fefp-1, kLn2Rest64 = 0x1.473de6af278edp-34;

// 2^n for an integer n from -1022 to 1023, from the bits of n.
Num power_of_two_f64(Num n) {
  return from_bits((n + n.word(1023)) << 52);
}

// p * 2^n for n from -2044 to 2046, rounded once even where the result is denormal: p is of
// moderate size, so only the second product can be inexact.
Num scale_f64(Num p, Num n) {
  Num half = ((n + n.word(2048)) >> 1) - n.word(1024);
  return p * power_of_two_f64(half) * power_of_two_f64(n - half);
}

// x = n ln 2 + r with |r| <= ln 2 / 2.
struct ExpArgument64 {
  Num r, n;
};
ExpArgument64 exp_argument_f64(Num x) {
  Num n(x);
  Num whole = round_small_product(x, kLog2E64, &n);
  Num r = fma(whole, x.like(-kLn2Short64), x);
  return {fma(whole, x.like(-kLn2Rest64), r), n};
}

// e^r - 1 = r + r^2 p(r) with the series of p: what is left out is below 2^-57 of it.
Num expm1_series_f64(Num r) {
  Num p = polynomial(r, {1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320,
                         1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600,
                         1.0 / 6227020800});
  return fma(r * r, p, r);
}

// x = 2^e (1+f) with sqrt(1/2) <= 1+f < sqrt(2), for positive finite x; others give something
// finite. log(1+f) = f - (half - tail), half = f^2/2.
struct LogArgument64 {
  Num e, f, half, tail;
};
LogArgument64 log_argument_f64(Num x) {
  constexpr std::uint64_t kOne = 0x3ff0000000000000, kRootHalf = 0x3fe6a09e667f3bcd;
  Num tiny = x < 0x1p-1022;
  Num bits = to_bits(select(tiny, x * 0x1p54, x));
  Num moved = bits + bits.word(kOne - kRootHalf); // the exponent changes at sqrt(1/2)
  Num f = from_bits((moved & bits.word(0xfffffffffffff)) + bits.word(kRootHalf)) - 1.0;
  // The biased exponent becomes the low bits of 2^52.
  Num e = from_bits((moved >> 52) | bits.word(0x4330000000000000)) -
          select(tiny, x.like(0x1p52 + 1023 + 54), 0x1p52 + 1023);
  // With s = f/(2+f): log(1+f) = 2 atanh s = 2s + s z p(z), z = s^2, and f - f^2/2 + s f^2/2 = 2s.
  Num s = f / (f + 2.0);
  Num z = s * s;
  Num p = polynomial(z, {0x1.5555555555593p-1, 0x1.999999997f9f7p-2, 0x1.249249422a5e3p-2,
                         0x1.c71c51d7b7f2bp-3, 0x1.746649b40c1d2p-3, 0x1.39a09532ac027p-3,
                         0x1.2f1181102ae9ap-3});
  Num half = f * f * 0.5;
  return {e, f, half, s * fma(z, p, half)};
}

// a - b and what its rounding lost (Knuth).
struct Difference64 {
  Num value, lost;
};
Difference64 difference_f64(Num a, Num b) {
  Num value = a - b;
  Num back = value - a;
  return {value, (a - (value - back)) - (b + back)};
}

// Up to here multiples of the parts of pi/2 are exact.
constexpr double kLargest64 = 0x1p20;

// sin (first = 0) or cos (first = 1).
Num sin_or_cos_f64(Num x, int first) {
  // x = n pi/2 + r + low, with pi/2 in three parts of 33 bits and one of 53. What differences lose
  // is kept in `low`.
  Num n(x);
  Num whole = round_small_product(x, 0x1.45f306dc9c883p-1, &n);
  Num near = fma(whole, x.like(-0x1.921fb544p+0), x); // exact
  auto [second, lost_second] = difference_f64(near, whole * 0x1.0b4611a6p-34);
  auto [third, lost_third] = difference_f64(second, whole * 0x1.3198a2ep-69);
  Num rest = fma(whole, x.like(-0x1.b839a252049c1p-104), lost_second + lost_third);
  Num r = third + rest;
  Num low = (third - r) + rest;
  Num z = r * r, v = z * r;
  Num s = polynomial(z, {0x1.111111110f595p-7, -0x1.a01a019bb4438p-13, 0x1.71de352630a6ap-19,
                         -0x1.ae5e25f2201cep-26, 0x1.5d803d4cc98fep-33});
  Num sine = r - ((z * (low * 0.5 - v * s) - low) - v * -0x1.5555555555547p-3);
  Num c = polynomial(z, {0x1.555555555554ap-5, -0x1.6c16c16c14df7p-10, 0x1.a01a019c5abd3p-16,
                         -0x1.27e4f7cbcc626p-22, 0x1.1ee9c21720663p-29, -0x1.8f99251fc94c6p-37});
  Num half = z * 0.5;
  Num most = x.like(1) - half;
  Num cosine = most + (((x.like(1) - most) - half) + (z * (z * c) - r * low));
  n = first == 0 ? n : n + n.word(1);
  Num odd = (n & n.word(1)) != n.word(0);
  Num sign = (n & n.word(2)) << 62;
  return from_bits(to_bits(select(odd, cosine, sine)) ^ sign);
}

Num with_large_f64(const char* library, Num x, Num result) {
  Num large = (abs(x) > kLargest64) & (abs(x) < HUGE_VAL);
  return where_rare(large, result, [&] { return call_library(library, x); });
}

} // namespace

Num exp_f64(Num x) {
  auto [r, n] = exp_argument_f64(clamp(x, -746, 710));
  Num p = expm1_series_f64(r) + 1.0;
  // What rounds to 0 is 0 before it is scaled: an underflow would cost some CPUs a hundred cycles.
  return scale_f64(select(x < -745.2, 0.0, p), n);
}

Num exp2_f64(Num x) {
  x = clamp(x, -1076, 1025);
  Num n(x);
  Num whole = round_small(x, &n);
  return scale_f64(expm1_series_f64((x - whole) * kLn264) + 1.0, n);
}

Num expm1_f64(Num x) {
  // 2^n (e^r - 1) + 2^n - 1, halved until the end so that n = 1024 does not overflow early.
  auto [r, n] = exp_argument_f64(clamp(x, -40, 710));
  Num half = power_of_two_f64(n - n.word(1));
  Num y = fma(half, expm1_series_f64(r), half - 0.5);
  return copysign(y + y, x);
}

Num log_f64(Num x) {
  auto [e, f, half, tail] = log_argument_f64(x);
  Num low = half - fma(e, x.like(kLn2Rest64), tail);
  return log_edges(x, e * kLn2Short64 - (low - f));
}

Num log2_f64(Num x) {
  auto [e, f, half, tail] = log_argument_f64(x);
  // log(1+f) = high + low, where products of `high` with the short part of 1/ln 2 are exact.
  Num high = f - half;
  high = from_bits(to_bits(high) & to_bits(high).word(0xffffffff00000000));
  Num low = (f - high) - half + tail;
  Num exact = high * kLog2EShort64;
  Num inexact = (low + high) * kLog2ERest64 + low * kLog2EShort64;
  Num sum = e + exact;
  return log_edges(x, sum + (inexact + ((e - sum) + exact)));
}

Num log1p_f64(Num x) {
  Num sum = x + 1.0;
  auto [e, f, half, tail] = log_argument_f64(sum);
  // log(1+x) = log(sum) + lost / sum
  Num lost = select(sum > 2.0, x.like(1) - (sum - x), x - (sum - 1.0)) / sum;
  Num low = half - (tail + fma(e, x.like(kLn2Rest64), lost));
  return copysign(log_edges(sum, e * kLn2Short64 - (low - f)), x);
}

Num sin_f64(Num x) {
  // The differences in the reduction lose the sign of -0.
  Num result = select(x == 0.0, x, sin_or_cos_f64(x, 0));
  return with_large_f64("egret_sin_f64", x, result);
}

Num cos_f64(Num x) {
  return with_large_f64("egret_cos_f64", x, sin_or_cos_f64(x, 1));
}

Num tanh_f64(Num x) {
  // m/(m+2) with m = e^2|x| - 1, which keeps its relative accuracy down to 0.
  auto [r, n] = exp_argument_f64(at_most(abs(x + x), 44)); // 1 from 38.2 on
  Num s = power_of_two_f64(n);
  Num m = fma(s, expm1_series_f64(r), s - 1.0);
  return copysign(m / (m + 2.0), x);
}

Num sigmoid_f64(Num x) {
  // 1/(1+z), or z/(1+z) for negative x, with z = e^-|x| <= 1, so that nothing overflows.
  auto [r, n] = exp_argument_f64(at_least(-abs(x), -746));
  Num p = expm1_series_f64(r);
  Num s = scale_f64(x.like(1), n);
  Num z = fma(s, p, s);
  Num d = fma(s, p, s + 1.0);
  return select(x < 0.0, z, x.like(1)) / d;
}

} // namespace egret::backend::cpu
