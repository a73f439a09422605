#include "egraph/bigint.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace egret::egraph {
namespace {
constexpr std::uint64_t kBase = std::uint64_t{1} << 32;
} // namespace

BigInt::BigInt(std::int64_t x) : negative_(x < 0) {
  std::uint64_t magnitude =
      x < 0 ? ~static_cast<std::uint64_t>(x) + 1 : static_cast<std::uint64_t>(x);
  for (; magnitude != 0; magnitude >>= 32)
    limbs_.push_back(static_cast<std::uint32_t>(magnitude));
}

void BigInt::trim(Limbs& limbs) {
  while (!limbs.empty() && limbs.back() == 0)
    limbs.pop_back();
}

BigInt BigInt::make(Limbs limbs, bool negative) {
  trim(limbs);
  BigInt out;
  out.negative_ = negative && !limbs.empty();
  out.limbs_ = std::move(limbs);
  return out;
}

std::optional<BigInt> BigInt::parse(std::string_view decimal) {
  bool negative = decimal.starts_with('-');
  if (negative || decimal.starts_with('+'))
    decimal.remove_prefix(1);
  if (decimal.empty())
    return std::nullopt;
  Limbs limbs;
  for (char c : decimal) {
    if (c < '0' || c > '9')
      return std::nullopt;
    std::uint64_t carry = static_cast<std::uint64_t>(c - '0');
    for (std::uint32_t& limb : limbs) {
      carry += std::uint64_t{limb} * 10;
      limb = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0)
      limbs.push_back(static_cast<std::uint32_t>(carry));
  }
  return make(std::move(limbs), negative);
}

std::uint64_t BigInt::bits() const {
  return limbs_.empty()
             ? 0
             : 32 * limbs_.size() - static_cast<std::uint64_t>(std::countl_zero(limbs_.back()));
}

std::string BigInt::to_string() const {
  if (limbs_.empty())
    return "0";
  std::string digits;
  Limbs rest = limbs_;
  while (!rest.empty()) {
    std::uint64_t remainder = 0;
    for (std::size_t i = rest.size(); i-- > 0;) {
      remainder = remainder * kBase + rest[i];
      rest[i] = static_cast<std::uint32_t>(remainder / 1'000'000'000);
      remainder %= 1'000'000'000;
    }
    trim(rest);
    for (int k = 0; k < 9 && (remainder != 0 || !rest.empty()); ++k, remainder /= 10)
      digits += static_cast<char>('0' + remainder % 10);
  }
  if (negative_)
    digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

double BigInt::to_double() const {
  double out = 0;
  for (std::size_t i = limbs_.size(); i-- > 0;)
    out = out * static_cast<double>(kBase) + limbs_[i];
  return negative_ ? -out : out;
}

std::optional<std::int64_t> BigInt::to_i64() const {
  if (limbs_.size() > 2)
    return std::nullopt;
  std::uint64_t magnitude = 0;
  for (std::size_t i = limbs_.size(); i-- > 0;)
    magnitude = magnitude << 32 | limbs_[i];
  std::uint64_t limit = std::uint64_t{1} << 63;
  if (magnitude > limit || (magnitude == limit && !negative_))
    return std::nullopt;
  return static_cast<std::int64_t>(negative_ ? ~magnitude + 1 : magnitude);
}

std::size_t BigInt::hash() const {
  std::uint64_t h = negative_ ? 0x9E3779B97F4A7C15u : 0;
  for (std::uint32_t limb : limbs_)
    h = (h ^ limb) * 0xD6E8FEB86659FD93u + (h >> 29);
  return h;
}

int BigInt::compare(const Limbs& a, const Limbs& b) {
  if (a.size() != b.size())
    return a.size() < b.size() ? -1 : 1;
  for (std::size_t i = a.size(); i-- > 0;) {
    if (a[i] != b[i])
      return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

BigInt::Limbs BigInt::add(const Limbs& a, const Limbs& b) {
  Limbs out;
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    carry += (i < a.size() ? a[i] : 0) + std::uint64_t{i < b.size() ? b[i] : 0};
    out.push_back(static_cast<std::uint32_t>(carry));
    carry >>= 32;
  }
  if (carry != 0)
    out.push_back(static_cast<std::uint32_t>(carry));
  return out;
}

BigInt::Limbs BigInt::subtract(const Limbs& a, const Limbs& b) {
  Limbs out;
  std::int64_t borrow = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::int64_t digit = static_cast<std::int64_t>(a[i]) - (i < b.size() ? b[i] : 0) - borrow;
    borrow = digit < 0;
    out.push_back(
        static_cast<std::uint32_t>(digit + (borrow ? static_cast<std::int64_t>(kBase) : 0)));
  }
  return out;
}

BigInt BigInt::operator-() const {
  return make(limbs_, !negative_);
}

BigInt operator+(const BigInt& a, const BigInt& b) {
  if (a.negative_ == b.negative_)
    return BigInt::make(BigInt::add(a.limbs_, b.limbs_), a.negative_);
  if (BigInt::compare(a.limbs_, b.limbs_) >= 0)
    return BigInt::make(BigInt::subtract(a.limbs_, b.limbs_), a.negative_);
  return BigInt::make(BigInt::subtract(b.limbs_, a.limbs_), b.negative_);
}

BigInt operator-(const BigInt& a, const BigInt& b) {
  return a + -b;
}

BigInt operator*(const BigInt& a, const BigInt& b) {
  BigInt::Limbs out(a.limbs_.size() + b.limbs_.size(), 0);
  for (std::size_t i = 0; i < a.limbs_.size(); ++i) {
    std::uint64_t carry = 0;
    for (std::size_t j = 0; j < b.limbs_.size() || carry != 0; ++j) {
      carry += out[i + j] + std::uint64_t{a.limbs_[i]} * (j < b.limbs_.size() ? b.limbs_[j] : 0);
      out[i + j] = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
  }
  return BigInt::make(std::move(out), a.negative_ != b.negative_);
}

/// The limbs of a shifted right by `count` bits.
BigInt::Limbs BigInt::high_bits(const Limbs& a, std::uint64_t count) {
  Limbs out;
  const unsigned shift = count % 32;
  for (std::size_t i = count / 32; i < a.size(); ++i) {
    const std::uint32_t above = shift == 0 || i + 1 == a.size() ? 0 : a[i + 1] << (32 - shift);
    out.push_back(a[i] >> shift | above);
  }
  trim(out);
  return out;
}

void BigInt::divide(const BigInt& a, const BigInt& b, BigInt& quotient, BigInt& remainder) {
  if (b.limbs_.size() == 1) { // by one limb, from the top
    Limbs q(a.limbs_.size());
    std::uint64_t rest = 0;
    for (std::size_t i = a.limbs_.size(); i-- > 0;) {
      rest = rest * kBase + a.limbs_[i];
      q[i] = static_cast<std::uint32_t>(rest / b.limbs_[0]);
      rest %= b.limbs_[0];
    }
    bool negative = a.negative_;
    quotient = make(std::move(q), a.negative_ != b.negative_);
    remainder = make({static_cast<std::uint32_t>(rest)}, negative);
    return;
  }
  if (compare(a.limbs_, b.limbs_) < 0) {
    remainder = a;
    quotient = {};
    return;
  }
  // Binary long division, from the first bits of a that may be as large as b.
  Limbs q(a.limbs_.size(), 0);
  const std::uint64_t first = a.bits() - b.bits() + 1;
  Limbs rest = high_bits(a.limbs_, first);
  for (std::uint64_t bit = first; bit-- > 0;) {
    std::uint32_t carry = a.limbs_[bit / 32] >> (bit % 32) & 1;
    for (std::uint32_t& limb : rest) {
      std::uint32_t top = limb >> 31;
      limb = limb << 1 | carry;
      carry = top;
    }
    if (carry != 0)
      rest.push_back(carry);
    if (compare(rest, b.limbs_) >= 0) {
      rest = subtract(rest, b.limbs_);
      trim(rest);
      q[bit / 32] |= std::uint32_t{1} << (bit % 32);
    }
  }
  bool negative = a.negative_;
  quotient = make(std::move(q), a.negative_ != b.negative_);
  remainder = make(std::move(rest), negative);
}

BigInt BigInt::shifted_left(std::uint64_t count) const {
  if (is_zero())
    return {};
  Limbs out(count / 32, 0);
  std::uint32_t carry = 0;
  unsigned shift = count % 32;
  for (std::uint32_t limb : limbs_) {
    out.push_back(limb << shift | carry);
    carry = shift == 0 ? 0 : limb >> (32 - shift);
  }
  out.push_back(carry);
  return make(std::move(out), negative_);
}

BigInt BigInt::shifted_right(std::uint64_t count) const {
  BigInt power = BigInt(1).shifted_left(std::min(count, bits() + 1));
  BigInt q, r;
  divide(*this, power, q, r);
  return r.is_negative() ? q - BigInt(1) : q;
}

BigInt::Limbs BigInt::twos_complement(std::size_t count) const {
  Limbs out = limbs_;
  out.resize(count, 0);
  if (!negative_)
    return out;
  std::uint64_t carry = 1;
  for (std::uint32_t& limb : out) {
    carry += static_cast<std::uint32_t>(~limb);
    limb = static_cast<std::uint32_t>(carry);
    carry >>= 32;
  }
  return out;
}

BigInt BigInt::bitwise(Bitwise op, const BigInt& a, const BigInt& b) {
  std::size_t count = std::max(a.limbs_.size(), b.limbs_.size()) + 1;
  Limbs x = a.twos_complement(count), y = b.twos_complement(count);
  for (std::size_t i = 0; i < count; ++i)
    x[i] = op == Bitwise::And ? x[i] & y[i] : op == Bitwise::Or ? x[i] | y[i] : x[i] ^ y[i];
  bool negative = x.back() >> 31;
  BigInt raw = make(std::move(x), false);
  return negative ? raw - BigInt(1).shifted_left(32 * count) : raw;
}

BigInt BigInt::gcd(BigInt a, BigInt b) {
  a.negative_ = b.negative_ = false;
  while (!b.is_zero()) {
    BigInt q, r;
    divide(a, b, q, r);
    a = std::move(b);
    b = std::move(r);
  }
  return a;
}

std::optional<BigInt> BigInt::power(std::uint64_t exponent) const {
  if (bits() > 1 && exponent > kMostBits / bits())
    return std::nullopt;
  BigInt out(1), base = *this;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1)
      out = out * base;
    if (exponent > 1)
      base = base * base;
  }
  return out;
}

std::strong_ordering BigInt::operator<=>(const BigInt& other) const {
  if (negative_ != other.negative_)
    return negative_ ? std::strong_ordering::less : std::strong_ordering::greater;
  int order = compare(limbs_, other.limbs_) * (negative_ ? -1 : 1);
  return order <=> 0;
}

BigRat::BigRat(const BigInt& numerator, const BigInt& denominator) {
  BigInt divisor = BigInt::gcd(numerator, denominator), rest;
  if (denominator.is_negative())
    divisor = -divisor;
  BigInt::divide(numerator, divisor, numerator_, rest);
  BigInt::divide(denominator, divisor, denominator_, rest);
}

double BigRat::to_double() const {
  // Bring both to at most 1000 bits, so that neither overflows where the quotient does not.
  std::uint64_t most = std::max(numerator_.bits(), denominator_.bits());
  std::uint64_t shift = most > 1000 ? most - 1000 : 0;
  return numerator_.shifted_right(shift).to_double() /
         denominator_.shifted_right(shift).to_double();
}

BigInt BigRat::floor() const {
  BigInt q, r;
  BigInt::divide(numerator_, denominator_, q, r);
  return r.is_negative() ? q - BigInt(1) : q;
}

BigRat operator+(const BigRat& a, const BigRat& b) {
  return {a.numerator_ * b.denominator_ + b.numerator_ * a.denominator_,
          a.denominator_ * b.denominator_};
}
BigRat operator-(const BigRat& a, const BigRat& b) {
  return {a.numerator_ * b.denominator_ - b.numerator_ * a.denominator_,
          a.denominator_ * b.denominator_};
}
BigRat operator*(const BigRat& a, const BigRat& b) {
  return {a.numerator_ * b.numerator_, a.denominator_ * b.denominator_};
}
std::strong_ordering BigRat::operator<=>(const BigRat& other) const {
  return numerator_ * other.denominator_ <=> other.numerator_ * denominator_;
}

} // namespace egret::egraph
