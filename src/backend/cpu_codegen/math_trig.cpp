// Sine and cosine in f32.
#include "backend/cpu_codegen/math_f32.h"
#include "backend/cpu_codegen/math_parts.h"
#include "backend/cpu_codegen/ops.h"

#include <cmath>

namespace egret::backend::cpu {
namespace {

// Up to here the reduction below is exact to far beyond f32; larger arguments are rare and go to
// the library, lane by lane.
constexpr double kLargest = 262144;

// sin (first = 0) or cos (first = 1).
Num sin_or_cos(Num x, int first) {
  // x = n pi/2 + r + low. pi/2 is in three parts of 24 bits. The first product is taken off
  // exactly: the result is a multiple of 2^-24 below 1. The second is split into its rounded value
  // and the rest, its subtraction likewise (Knuth's sum), and all rests are kept in `low`.
  Num n(x);
  Num whole = round_small(x * 0x1.45f306p-1, &n);
  Num near = fma(whole, x.like(-0x1.921fb6p+0), x);
  Num second = whole * 0x1.777a5cp-25;
  Num rest = fma(whole, x.like(0x1.777a5cp-25), -second);
  Num r = near + second;
  Num back = r - near;
  Num lost = (near - (r - back)) + (second - back);
  Num low = fma(whole, x.like(0x1.ee59dap-50), lost + rest);
  Num z = r * r;
  Num s = polynomial(z, {-0x1.555556p-3, 0x1.111168p-7, -0x1.a049dp-13, 0x1.779984p-19});
  Num c = polynomial(z, {0x1.555546p-5, -0x1.6c09cp-10, 0x1.993bcep-16});
  Num sine = fma(s * z, r, low) + r;
  Num cosine = fma(fma(c, z, z.like(-0.5)), z, fma(-r, low, z.like(1)));
  n = first == 0 ? n : n + n.word(1);
  Num odd = (n & n.word(1)) != n.word(0);
  Num sign = (n & n.word(2)) << 30;
  return from_bits(to_bits(select(odd, cosine, sine)) ^ sign);
}

// NaN and infinities have their result already.
Num with_large(const char* library, Num x, Num result) {
  Num large = (abs(x) > kLargest) & (abs(x) < HUGE_VAL);
  return where_rare(large, result, [&] { return call_library(library, x); });
}

} // namespace

Num sin_f32(Num x) {
  // The sum of zeros in the reduction loses the sign of -0.
  Num result = select(x == 0.0, x, sin_or_cos(x, 0));
  return with_large("egret_sin_large_f32", x, result);
}

Num cos_f32(Num x) {
  return with_large("egret_cos_large_f32", x, sin_or_cos(x, 1));
}

} // namespace egret::backend::cpu
