// The nodes of expressions: the registry that makes equal nodes one, the facts every node carries,
// and the order of monomials.
#pragma once

#include "egret/expr.h"

#include <cstdint>
#include <span>
#include <vector>

namespace egret::expr_detail {

inline constexpr std::int64_t kNoLower = INT64_MIN; ///< "unknown" among lower bounds
inline constexpr std::int64_t kNoUpper = INT64_MAX; ///< "unknown" among upper bounds

// Arithmetic that throws Error(Value) where the result does not fit 64 bits.
std::int64_t checked_add(std::int64_t a, std::int64_t b);
std::int64_t checked_multiply(std::int64_t a, std::int64_t b);
std::int64_t checked_negate(std::int64_t a);
/// Rounds down; b is not 0.
std::int64_t floor_quotient(std::int64_t a, std::int64_t b);
std::int64_t floor_remainder(std::int64_t a, std::int64_t b);
/// Greatest common divisor, not negative; gcd(0, 0) is 0. A result of 2^63 is given as 2^62.
std::int64_t common_divisor(std::int64_t a, std::int64_t b) noexcept;
/// A divisor of every product of a multiple of `a` and a multiple of `b`: a * b where that fits.
std::int64_t product_divisor(std::int64_t a, std::int64_t b) noexcept;

/// All values from lower to upper; the ends may be unknown.
struct Range {
  std::int64_t lower, upper;
};
Range sum_of(Range a, Range b) noexcept;
Range product_of(Range a, Range b) noexcept;
Range quotient_of(Range a, Range b) noexcept; ///< floordiv; b >= 1
inline Range range_of(const Expr& e) noexcept {
  return {e.lower(), e.upper()};
}

/// Whether a term's factor: anything but a constant, a sum and a product.
bool is_atom(ExprKind kind) noexcept;
/// The factors of a monomial, in order.
std::span<const Expr> atoms_of(const Expr& monomial) noexcept;

/// The total order of monomials (and of atoms): higher degree first, then symbols by name, axes by
/// number, the others by hash. The same in every process.
bool before(const Expr& a, const Expr& b) noexcept;

// Makers. The operands must be in normal form already; nothing is simplified but an atom that can
// have one value only.
Expr make_constant(std::int64_t value);
Expr make_symbol(const std::string& name, std::int64_t lo, std::int64_t hi, std::int64_t divisor);
Expr make_axis(int number, const Expr& extent);
Expr make_binary(ExprKind kind, const Expr& a,
                 const Expr& b);            ///< FloorDiv and FloorMod (b >= 1), Min, Max
Expr make_product(std::vector<Expr> atoms); ///< sorted, at least two
Expr make_sum(std::int64_t constant, std::vector<Expr> monomials,
              std::vector<std::int64_t> coefficients); ///< sorted, no coefficient 0, at least one

} // namespace egret::expr_detail
