// Quotients and square roots of f32 without branches and calls, which would keep neighbouring
// elements from being worked on at the same time and make registers spill: an approximation,
// corrected once (Markstein, IA-64 and Elementary Functions, 2000). The statements stand here once,
// for the text of kernels and for the tests that compare them with what they stand for.
#pragma once

/// The text of statements.
#define EGRET_TEXT_OF(...) #__VA_ARGS__
#define EGRET_TEXT(...) EGRET_TEXT_OF(__VA_ARGS__)

/// Returns a / b, `r` being 1 / b to one unit in the last place. Beyond 2^-100 and 2^126 it is the
/// product, off by two units at most; infinities, zeros and NaN are as they should be.
#define EGRET_QUICK_DIV                                                                            \
  const float size = fabsf(b);                                                                     \
  r = size > 0x1p-100f && size < 0x1p100f ? fmaf(fmaf(-b, r, 1.0f), r, r) : r;                     \
  const float q = a * r;                                                                           \
  const float c = fmaf(fmaf(-q, b, a), r, q);                                                      \
  return fabsf(q) > 0x1p-100f && fabsf(q) < 0x1p126f ? c : q;

/// What x is multiplied by so that neither its root nor what is made on the way leaves the normal
/// numbers: a power of 4.
#define EGRET_ROOT_SCALE (x < 0x1p-100f ? 0x1p64f : x > 0x1p100f ? 0x1p-64f : 1.0f)
/// Returns the square root of x, `y` being x times that and `r` 1 / sqrt(y) to two units in the
/// last place; zeros, infinity, negative numbers and NaN are as they should be.
#define EGRET_QUICK_SQRT                                                                           \
  const float s = y * r;                                                                           \
  const float c = fmaf(fmaf(-s, s, y), 0.5f * r, s);                                               \
  return x == 0.0f || x > 0x1.fffffep127f ? x                                                      \
                                          : c * (x < 0x1p-100f  ? 0x1p-32f                         \
                                                 : x > 0x1p100f ? 0x1p32f                          \
                                                                : 1.0f);

/// Returns tanh(x) to a relative error of 2^-18, `r` being 1 / (1 + exp(2 |x|)) to two units in the
/// last place: by the first two terms of its series where those are as good, behind them by
/// 1 - 2 r; zeros, infinities and NaN are as they should be.
#define EGRET_NARROW_TANH                                                                          \
  const float size = fabsf(x);                                                                     \
  const float near = fmaf(size * size * -0.333333343f, size, size);                                \
  return copysignf(size < 0.05f ? near : fmaf(-2.0f, r, 1.0f), x);

/// The narrow forms flush what is below the smallest normal number to 0, in what is given and in
/// what is made: a result that is no more than 2^-126 may be 0.

/// exp(x) is 2 to this power, off by 2^-17 of itself at most: by |x| 2^-24 and two units in the
/// last place of the power. The logistic function is 1 / (1 + exp(-x)), off by as much.
#define EGRET_NARROW_POWER(x) (x) * 1.44269504f

/// What a divisor b is multiplied by so that both it and its reciprocal are normal numbers.
#define EGRET_NARROW_SCALE (fabsf(b) > 0x1p125f ? 0x1p-64f : fabsf(b) < 0x1p-100f ? 0x1p64f : 1.0f)
