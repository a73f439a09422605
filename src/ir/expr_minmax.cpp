// Minimum and maximum in normal form: nested ones flattened, operands that can never win dropped,
// what all operands share taken out.
#include "ir/expr_poly.h"

#include <algorithm>

namespace egret {

namespace expr_detail {

namespace {

constexpr std::size_t kMostOperands = 12;

/// Appends the operands of e = rest + kind(a, b), or e itself.
void flatten(ExprKind kind, const Expr& e, std::vector<Expr>& operands) {
  std::vector<Expr> waiting{e};
  while (!waiting.empty()) {
    const Expr next = waiting.back();
    waiting.pop_back();
    const Poly poly(next);
    const auto nested = std::find_if(poly.terms.begin(), poly.terms.end(), [&](const Term& term) {
      return term.coefficient == 1 && term.monomial.node().kind == kind;
    });
    if (nested == poly.terms.end() || operands.size() + waiting.size() + 2 > kMostOperands) {
      operands.push_back(next);
      continue;
    }
    const Expr rest = next - nested->monomial;
    for (const Expr& operand : nested->monomial.node().operands)
      waiting.push_back(operand + rest);
  }
}

/// Constants last, sums by their leading term.
bool operand_before(const Expr& a, const Expr& b) {
  const auto lead = [](const Expr& e) -> const Expr& {
    return e.node().kind == ExprKind::Sum ? e.node().operands[0] : e;
  };
  if (a.is_constant() || b.is_constant())
    return !a.is_constant();
  if (!(lead(a) == lead(b)))
    return before(lead(a), lead(b));
  return a.hash() < b.hash();
}

/// Drops every operand that another one always beats.
void drop_losers(ExprKind kind, std::vector<Expr>& operands) {
  for (std::size_t i = 0; i < operands.size(); ++i)
    for (std::size_t j = 0; j < operands.size(); ++j) {
      if (i == j)
        continue;
      const Expr &winner = operands[i], &loser = operands[j];
      if (kind == ExprKind::Min ? proves_less_equal(winner, loser)
                                : proves_less_equal(loser, winner)) {
        operands.erase(operands.begin() + static_cast<std::ptrdiff_t>(j));
        if (j < i)
          --i;
        --j;
      }
    }
}

/// The terms that all operands have, and the constant of the first.
Expr shared_part(const std::vector<Expr>& operands) {
  Poly shared(operands[0]);
  for (std::size_t i = 1; i < operands.size(); ++i) {
    const Poly other(operands[i]);
    std::erase_if(shared.terms, [&](const Term& term) {
      return std::none_of(other.terms.begin(), other.terms.end(), [&](const Term& o) {
        return o.monomial == term.monomial && o.coefficient == term.coefficient;
      });
    });
  }
  return std::move(shared).build();
}

Expr extremum(ExprKind kind, const Expr& a, const Expr& b) {
  if (a == b)
    return a;
  const bool least = kind == ExprKind::Min;
  if (const auto x = a.constant(), y = b.constant(); x && y)
    return least ? std::min(*x, *y) : std::max(*x, *y);
  if (proves_less_equal(a, b))
    return least ? a : b;
  if (proves_less_equal(b, a))
    return least ? b : a;
  std::vector<Expr> operands;
  flatten(kind, a, operands);
  flatten(kind, b, operands);
  if (operands.size() > 2)
    drop_losers(kind, operands);
  std::sort(operands.begin(), operands.end(), operand_before);
  const Expr shared = shared_part(operands);
  Expr result = operands[0] - shared;
  for (std::size_t i = 1; i < operands.size(); ++i)
    result = make_binary(kind, result, operands[i] - shared);
  return result + shared;
}

} // namespace

} // namespace expr_detail

Expr min(const Expr& a, const Expr& b) {
  return expr_detail::extremum(ExprKind::Min, a, b);
}

Expr max(const Expr& a, const Expr& b) {
  return expr_detail::extremum(ExprKind::Max, a, b);
}

} // namespace egret
