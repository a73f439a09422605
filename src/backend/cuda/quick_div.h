// A quotient of f32 without branches, which would keep neighbouring elements from being worked on
// at the same time: a product with the reciprocal, corrected once. The statements stand here once,
// for the text of kernels and for the test that compares them with the quotient.
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
