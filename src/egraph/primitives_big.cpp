// BigInt and BigRat.
#include "egraph/primitives.h"

#include <algorithm>
#include <cmath>

namespace egret::egraph {
namespace {
using MaybeBigInt = std::optional<BigInt>;
using MaybeRat = std::optional<BigRat>;

MaybeBigInt quotient(const BigInt& a, const BigInt& b, bool remainder) {
  if (b.is_zero())
    return std::nullopt;
  BigInt q, r;
  BigInt::divide(a, b, q, r);
  return remainder ? r : q;
}

/// The exact root of a perfect power, by bisection on the integers.
MaybeBigInt exact_root(const BigInt& x, unsigned degree) {
  if (x.is_negative())
    return std::nullopt;
  BigInt low(0), high = BigInt(1).shifted_left(x.bits() / degree + 1);
  while (low < high) {
    BigInt middle = (low + high + BigInt(1)).shifted_right(1);
    if (*middle.power(degree) <= x)
      low = middle;
    else
      high = middle - BigInt(1);
  }
  return *low.power(degree) == x ? MaybeBigInt(low) : std::nullopt;
}

MaybeRat root(const BigRat& x, unsigned degree) {
  bool negative = x.numerator().is_negative();
  if (negative && degree % 2 == 0)
    return std::nullopt;
  MaybeBigInt n = exact_root(negative ? -x.numerator() : x.numerator(), degree);
  MaybeBigInt d = exact_root(x.denominator(), degree);
  return n && d ? MaybeRat(BigRat(negative ? -*n : *n, *d)) : std::nullopt;
}

MaybeRat power(const BigRat& base, const BigRat& exponent) {
  if (exponent.denominator() != BigInt(1))
    return std::nullopt;
  std::optional<std::int64_t> e = exponent.numerator().to_i64();
  if (!e || (*e < 0 && base.numerator().is_zero()))
    return std::nullopt;
  std::uint64_t magnitude =
      *e < 0 ? ~static_cast<std::uint64_t>(*e) + 1 : static_cast<std::uint64_t>(*e);
  MaybeBigInt n = base.numerator().power(magnitude), d = base.denominator().power(magnitude);
  if (!n || !d)
    return std::nullopt;
  return *e < 0 ? BigRat(*d, *n) : BigRat(*n, *d);
}

void add_bigint(Signature& s) {
  using Big = const BigInt&;
  define(
      s, "bigint", +[](std::int64_t a) { return BigInt(a); });
  define(
      s, "from-string", +[](const std::string& text) {
        return text.size() <= BigInt::kMostBits / 3 ? BigInt::parse(text) : std::nullopt;
      });
  define(
      s, "+", +[](Big a, Big b) { return a + b; });
  define(
      s, "-", +[](Big a, Big b) { return a - b; });
  define(
      s, "*", +[](Big a, Big b) { return a * b; });
  define(
      s, "/", +[](Big a, Big b) { return quotient(a, b, false); });
  define(
      s, "%", +[](Big a, Big b) { return quotient(a, b, true); });
  define(
      s, "&", +[](Big a, Big b) { return BigInt::bitwise(BigInt::Bitwise::And, a, b); });
  define(
      s, "|", +[](Big a, Big b) { return BigInt::bitwise(BigInt::Bitwise::Or, a, b); });
  define(
      s, "^", +[](Big a, Big b) { return BigInt::bitwise(BigInt::Bitwise::Xor, a, b); });
  define(
      s, "<<", +[](Big a, std::int64_t n) -> MaybeBigInt {
        const auto count = static_cast<std::uint64_t>(n);
        return n >= 0 && count <= BigInt::kMostBits ? MaybeBigInt(a.shifted_left(count))
                                                    : std::nullopt;
      });
  define(
      s, ">>", +[](Big a, std::int64_t n) -> MaybeBigInt {
        return n >= 0 ? MaybeBigInt(a.shifted_right(static_cast<std::uint64_t>(n))) : std::nullopt;
      });
  define(
      s, "not-Z", +[](Big a) { return -a - BigInt(1); });
  define(
      s, "neg", +[](Big a) { return -a; });
  define(
      s, "abs", +[](Big a) { return a.is_negative() ? -a : a; });
  define(
      s, "bits", +[](Big a) { return BigInt(static_cast<std::int64_t>(a.bits())); });
  define(
      s, "min", +[](Big a, Big b) { return std::min(a, b); });
  define(
      s, "max", +[](Big a, Big b) { return std::max(a, b); });
  define(
      s, "<", +[](Big a, Big b) { return when(a < b); });
  define(
      s, ">", +[](Big a, Big b) { return when(a > b); });
  define(
      s, "<=", +[](Big a, Big b) { return when(a <= b); });
  define(
      s, ">=", +[](Big a, Big b) { return when(a >= b); });
  define(
      s, "bool-=", +[](Big a, Big b) { return a == b; });
  define(
      s, "bool-<", +[](Big a, Big b) { return a < b; });
  define(
      s, "bool->", +[](Big a, Big b) { return a > b; });
  define(
      s, "bool-<=", +[](Big a, Big b) { return a <= b; });
  define(
      s, "bool->=", +[](Big a, Big b) { return a >= b; });
  define(
      s, "to-i64", +[](Big a) { return a.to_i64(); });
  define(
      s, "to-f64", +[](Big a) { return a.to_double(); });
}

void add_bigrat(Signature& s) {
  using Rat = const BigRat&;
  static const BigInt kOne(1);
  define(
      s, "bigrat", +[](const BigInt& n, const BigInt& d) -> MaybeRat {
        return d.is_zero() ? std::nullopt : MaybeRat(BigRat(n, d));
      });
  define(
      s, "+", +[](Rat a, Rat b) { return a + b; });
  define(
      s, "-", +[](Rat a, Rat b) { return a - b; });
  define(
      s, "*", +[](Rat a, Rat b) { return a * b; });
  define(
      s, "/", +[](Rat a, Rat b) -> MaybeRat {
        if (b.numerator().is_zero())
          return std::nullopt;
        return BigRat(a.numerator() * b.denominator(), a.denominator() * b.numerator());
      });
  define(
      s, "min", +[](Rat a, Rat b) { return std::min(a, b); });
  define(
      s, "max", +[](Rat a, Rat b) { return std::max(a, b); });
  define(
      s, "neg", +[](Rat a) { return BigRat(-a.numerator(), a.denominator()); });
  define(
      s, "abs", +[](Rat a) {
        return BigRat(a.numerator().is_negative() ? -a.numerator() : a.numerator(),
                      a.denominator());
      });
  define(
      s, "floor", +[](Rat a) { return BigRat(a.floor(), kOne); });
  define(
      s, "ceil",
      +[](Rat a) { return BigRat(-BigRat(-a.numerator(), a.denominator()).floor(), kOne); });
  define(
      s, "round", +[](Rat a) { // halves away from zero
        BigRat half(kOne, BigInt(2));
        return a.numerator().is_negative()
                   ? BigRat(-(BigRat(-a.numerator(), a.denominator()) + half).floor(), kOne)
                   : BigRat((a + half).floor(), kOne);
      });
  define(
      s, "pow", +[](Rat a, Rat b) { return power(a, b); });
  define(
      s, "sqrt", +[](Rat a) { // of positive squares
        return a.numerator().is_zero() ? std::nullopt : root(a, 2);
      });
  define(
      s, "cbrt", +[](Rat a) { return root(a, 3); });
  define(
      s, "log", +[](Rat a) { // only log 1 is rational
        return a == BigRat(kOne, kOne) ? MaybeRat(BigRat()) : std::nullopt;
      });
  define(
      s, "numer", +[](Rat a) { return a.numerator(); });
  define(
      s, "denom", +[](Rat a) { return a.denominator(); });
  define(
      s, "to-f64", +[](Rat a) { return a.to_double(); });
  define(
      s, "to-i64",
      +[](Rat a) { return a.denominator() == kOne ? a.numerator().to_i64() : std::nullopt; });
  define(
      s, "<", +[](Rat a, Rat b) { return when(a < b); });
  define(
      s, ">", +[](Rat a, Rat b) { return when(a > b); });
  define(
      s, "<=", +[](Rat a, Rat b) { return when(a <= b); });
  define(
      s, ">=", +[](Rat a, Rat b) { return when(a >= b); });
  define(
      s, "bool-=", +[](Rat a, Rat b) { return a == b; });
}

} // namespace

void add_big_primitives(Signature& s) {
  add_bigint(s);
  add_bigrat(s);
}

} // namespace egret::egraph
