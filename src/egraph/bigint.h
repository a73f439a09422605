// Integers and fractions of any size, for the sorts BigInt and BigRat.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace egret::egraph {

/// A signed integer: sign and magnitude in 32-bit limbs, lowest first, without leading zeros.
class BigInt {
public:
  BigInt() = default;
  explicit BigInt(std::int64_t x);
  static std::optional<BigInt> parse(std::string_view decimal);

  bool is_zero() const { return limbs_.empty(); }
  bool is_negative() const { return negative_; }
  /// Number of bits of the magnitude; 0 for zero.
  std::uint64_t bits() const;
  /// Primitives make no longer numbers. The time of a product, a quotient and a greatest common
  /// divisor grows with the square of the length; of this one it is about a second.
  static constexpr std::uint64_t kMostBits = std::uint64_t{1} << 17;
  std::string to_string() const;
  double to_double() const;
  /// The value where it fits 64 bits.
  std::optional<std::int64_t> to_i64() const;
  std::size_t hash() const;

  BigInt operator-() const;
  friend BigInt operator+(const BigInt& a, const BigInt& b);
  friend BigInt operator-(const BigInt& a, const BigInt& b);
  friend BigInt operator*(const BigInt& a, const BigInt& b);
  /// Quotient and remainder, rounding towards zero; b is not zero.
  static void divide(const BigInt& a, const BigInt& b, BigInt& quotient, BigInt& remainder);
  /// Shifts of the two's-complement value (right shift rounds down).
  BigInt shifted_left(std::uint64_t count) const;
  BigInt shifted_right(std::uint64_t count) const;
  enum class Bitwise { And, Or, Xor };
  static BigInt bitwise(Bitwise op, const BigInt& a, const BigInt& b);
  static BigInt gcd(BigInt a, BigInt b);
  std::optional<BigInt> power(std::uint64_t exponent) const;

  bool operator==(const BigInt&) const = default;
  std::strong_ordering operator<=>(const BigInt& other) const;

private:
  using Limbs = std::vector<std::uint32_t>;
  static int compare(const Limbs& a, const Limbs& b);
  static Limbs add(const Limbs& a, const Limbs& b);
  static Limbs subtract(const Limbs& a, const Limbs& b); ///< a >= b
  static Limbs high_bits(const Limbs& a, std::uint64_t count);
  static void trim(Limbs& limbs);
  static BigInt make(Limbs limbs, bool negative);
  Limbs twos_complement(std::size_t limbs) const;

  Limbs limbs_;
  bool negative_ = false;
};

/// A fraction in lowest terms with a positive denominator.
class BigRat {
public:
  BigRat() : denominator_(1) {}
  /// `denominator` is not zero.
  BigRat(const BigInt& numerator, const BigInt& denominator);
  const BigInt& numerator() const { return numerator_; }
  const BigInt& denominator() const { return denominator_; }
  std::string to_string() const { return numerator_.to_string() + "/" + denominator_.to_string(); }
  double to_double() const;
  std::size_t hash() const { return numerator_.hash() * 31 + denominator_.hash(); }
  /// The greatest integer that is not above.
  BigInt floor() const;
  friend BigRat operator+(const BigRat& a, const BigRat& b);
  friend BigRat operator-(const BigRat& a, const BigRat& b);
  friend BigRat operator*(const BigRat& a, const BigRat& b);
  bool operator==(const BigRat&) const = default;
  std::strong_ordering operator<=>(const BigRat& other) const;

private:
  BigInt numerator_;
  BigInt denominator_;
};

} // namespace egret::egraph
