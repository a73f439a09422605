// What the functions in f32 and those in f64 share.
#pragma once

#include "backend/cpu_codegen/num.h"

#include <initializer_list>
#include <limits>

namespace egret::backend::cpu {

/// c[0] + c[1] x + c[2] x^2 .. by Horner's rule.
inline Num polynomial(Num x, std::initializer_list<double> coefficients) {
  const double* c = coefficients.end() - 1;
  Num p = x.like(*c);
  while (c != coefficients.begin())
    p = fma(p, x, x.like(*--c));
  return p;
}

// NaN stays in all three.
inline Num at_most(Num x, double high) {
  return select(x > high, high, x);
}
inline Num at_least(Num x, double low) {
  return select(x < low, low, x);
}
inline Num clamp(Num x, double low, double high) {
  return at_least(at_most(x, high), low);
}

/// The logarithm of what is not a positive finite number.
inline Num log_edges(Num x, Num result) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  result = select(x == kInf, x, result);
  result = select(x == 0.0, -kInf, result);
  Num undefined = x.with(x.b().CreateFCmpULT(x, x.like(0))); // negative or NaN
  return select(undefined, std::numeric_limits<double>::quiet_NaN(), result);
}

} // namespace egret::backend::cpu
