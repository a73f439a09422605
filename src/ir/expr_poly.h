// Polynomials under construction: sums of monomials that become expressions in normal form.
#pragma once

#include "ir/expr_node.h"

#include <optional>
#include <vector>

namespace egret::expr_detail {

/// A monomial times a number. The monomial is an atom or a product of atoms, never a constant.
struct Term {
  Expr monomial;
  std::int64_t coefficient;
};

/// constant + sum of terms, in any order, repeats allowed until build().
struct Poly {
  std::int64_t constant = 0;
  std::vector<Term> terms;

  Poly() = default;
  explicit Poly(const Expr& e) { add(e, 1); }

  void add(const Expr& e, std::int64_t times);                       ///< += times * e
  void add(const Expr& monomial, const Expr& e, std::int64_t times); ///< += times * monomial * e
  /// The expression: sorted, like terms merged, quotients and remainders put together again.
  Expr build() &&;
};

/// The number of terms of an expression, not counting its constant.
std::size_t term_count(const Expr& e) noexcept;
/// Monomial (or 1) times monomial (or 1).
Expr multiply_monomials(const Expr& a, const Expr& b);
/// a / b where every factor of b is one of a; b may be 1.
std::optional<Expr> divide_monomials(const Expr& a, const Expr& b);
/// a * b multiplied out; throws Error(Value) when that has thousands of terms.
Expr product_of_sums(const Expr& a, const Expr& b);

/// What x // m is a quotient of: (x // a + c) // m is (x + c * a) // (a * m).
struct Quotient {
  Expr numerator, denominator;
};
Quotient merged_quotient(Expr numerator, Expr denominator);

/// x less the multiple of m that is nearest to each coefficient, and the one below the constant: of
/// 31 i + j and 30 it is i + j.
Expr nearest_remainder(const Expr& x, std::int64_t m);

} // namespace egret::expr_detail
