#include "ir/expr_poly.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::expr_detail {

namespace {

constexpr std::size_t kMostTerms = 4096;
constexpr int kMostSteps =
    1000; // recombinations of one sum; each makes it smaller, so this is never reached

bool divides_nothing(const Expr& monomial) noexcept {
  // Quotients and remainders are sorted behind symbols and axes.
  const ExprKind last = atoms_of(monomial).back().node().kind;
  return last == ExprKind::Symbol || last == ExprKind::Axis;
}

void sort_and_merge(std::vector<Term>& terms) {
  std::sort(terms.begin(), terms.end(),
            [](const Term& a, const Term& b) { return before(a.monomial, b.monomial); });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (kept > 0 && terms[kept - 1].monomial == terms[i].monomial) {
      terms[kept - 1].coefficient = checked_add(terms[kept - 1].coefficient, terms[i].coefficient);
    } else {
      if (kept > 0 && terms[kept - 1].coefficient == 0)
        --kept;
      if (kept != i)
        terms[kept] = std::move(terms[i]);
      ++kept;
    }
  }
  if (kept > 0 && terms[kept - 1].coefficient == 0)
    --kept;
  terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(kept), terms.end());
}

Expr without_factor(const Expr& monomial, std::size_t place) {
  const auto atoms = atoms_of(monomial);
  if (atoms.size() == 1)
    return Expr(1);
  std::vector<Expr> rest(atoms.begin(), atoms.end());
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(place));
  return rest.size() == 1 ? rest[0] : make_product(std::move(rest));
}

/// Rewrites of a sorted polynomial that take a quotient or a remainder out of it. Each makes it
/// smaller, so they end.
class Recombination {
public:
  explicit Recombination(Poly& poly) : poly_(poly), terms_(poly.terms) {}

  bool step() {
    for (std::size_t i = 0; i < terms_.size(); ++i) {
      if (divides_nothing(terms_[i].monomial))
        continue;
      const auto atoms = atoms_of(terms_[i].monomial);
      for (std::size_t j = 0; j < atoms.size(); ++j) {
        const ExprKind kind = atoms[j].node().kind;
        if (kind == ExprKind::FloorDiv && (cancel_exact(i, j) || form_remainder(i, j)))
          return true;
        if (kind == ExprKind::FloorMod && join_remainder(i, j))
          return true;
      }
    }
    return false;
  }

private:
  /// k * (x // c) with c dividing x: shares its factors with k.
  bool cancel_exact(std::size_t i, std::size_t j) {
    const Term term = terms_[i];
    const ExprNode& node = atoms_of(term.monomial)[j].node();
    const auto c = node.operands[1].constant();
    if (!c || node.operands[0].divisor() % *c != 0)
      return false;
    const std::int64_t shared = common_divisor(term.coefficient, *c);
    if (shared == 1)
      return false;
    const Expr rest = without_factor(term.monomial, j);
    const Expr left = floordiv(node.operands[0], *c / shared);
    erase(i);
    poly_.add(rest, left, term.coefficient / shared);
    return true;
  }

  /// k * x - k * m * (x // m) is k * (x % m).
  bool form_remainder(std::size_t i, std::size_t j) {
    const Term term = terms_[i];
    const ExprNode& node = atoms_of(term.monomial)[j].node();
    const Expr &x = node.operands[0], &m = node.operands[1];
    const auto divisor = single_term(m);
    if (!divisor || term.coefficient == INT64_MIN || term.coefficient % divisor->coefficient != 0)
      return false;
    const std::int64_t k = term.coefficient / divisor->coefficient;
    const auto rest = divide_monomials(without_factor(term.monomial, j), divisor->monomial);
    if (!rest)
      return false;
    Poly wanted;
    wanted.add(*rest, x, -k);
    if (wanted.terms.empty())
      return false;
    for (const Term& want : wanted.terms) {
      const Term* const have = find(want.monomial);
      if (have == nullptr || have->coefficient != want.coefficient)
        return false;
    }
    Poly change;
    change.add(*rest, x, k);
    change.terms.push_back({term.monomial, checked_negate(term.coefficient)});
    change.add(*rest, floormod(x, m), -k);
    apply(std::move(change));
    return true;
  }

  /// k * (x % m) with k * m * (x // m) is k * x; with k * m * ((x // m) % n) it is k * (x % (m *
  /// n)).
  bool join_remainder(std::size_t i, std::size_t j) {
    const Term term = terms_[i];
    const Expr factor = atoms_of(term.monomial)[j];
    const Expr &x = factor.node().operands[0], &m = factor.node().operands[1];
    const auto divisor = single_term(m);
    if (!divisor)
      return false;
    const Expr rest = without_factor(term.monomial, j);
    const Expr scale = multiply_monomials(rest, divisor->monomial);
    std::optional<Quotient> quotient;
    for (const Term& other : terms_) {
      if (divides_nothing(other.monomial) || other.monomial == term.monomial ||
          other.coefficient == INT64_MIN || other.coefficient % term.coefficient != 0)
        continue;
      const std::int64_t times = other.coefficient / term.coefficient;
      if (times < divisor->coefficient)
        continue;
      const auto left = divide_monomials(other.monomial, scale);
      if (!left || !is_atom(left->node().kind))
        continue;
      const ExprNode& partner = left->node();
      if (partner.kind != ExprKind::FloorDiv && partner.kind != ExprKind::FloorMod)
        continue;
      if (!quotient)
        quotient = merged_quotient(x, m);
      const Expr other_monomial = other.monomial;
      std::optional<Expr> whole;
      if (partner.kind == ExprKind::FloorDiv) {
        if (partner.operands[0] == quotient->numerator &&
            partner.operands[1] == quotient->denominator)
          whole = x;
      } else if (times == divisor->coefficient && is_quotient(partner.operands[0], *quotient) &&
                 product_fits(m, partner.operands[1])) {
        whole = floormod(x, m * partner.operands[1]);
      }
      if (!whole)
        continue;
      Poly change;
      change.add(rest, *whole, term.coefficient);
      change.terms.push_back({term.monomial, checked_negate(term.coefficient)});
      change.terms.push_back({other_monomial, checked_negate(checked_multiply(
                                                  term.coefficient, divisor->coefficient))});
      apply(std::move(change));
      return true;
    }
    return false;
  }

  static bool product_fits(const Expr& a, const Expr& b) noexcept {
    std::int64_t product = 0;
    const auto x = a.constant(), y = b.constant();
    return !x || !y || !__builtin_mul_overflow(*x, *y, &product);
  }

  static bool is_quotient(const Expr& e, const Quotient& quotient) noexcept {
    return e.node().kind == ExprKind::FloorDiv && e.node().operands[0] == quotient.numerator &&
           e.node().operands[1] == quotient.denominator;
  }

  static std::optional<Term> single_term(const Expr& e) {
    const ExprNode& node = e.node();
    if (node.kind == ExprKind::Constant)
      return Term{Expr(1), node.value};
    if (node.kind != ExprKind::Sum)
      return Term{e, 1};
    if (node.value == 0 && node.operands.size() == 1)
      return Term{node.operands[0], node.coefficients[0]};
    return std::nullopt;
  }

  const Term* find(const Expr& monomial) const {
    const auto it = std::lower_bound(
        terms_.begin(), terms_.end(), monomial,
        [](const Term& term, const Expr& key) { return before(term.monomial, key); });
    return it != terms_.end() && it->monomial == monomial ? &*it : nullptr;
  }

  void erase(std::size_t i) { terms_.erase(terms_.begin() + static_cast<std::ptrdiff_t>(i)); }

  void apply(Poly change) {
    poly_.constant = checked_add(poly_.constant, change.constant);
    std::move(change.terms.begin(), change.terms.end(), std::back_inserter(terms_));
  }

  Poly& poly_;
  std::vector<Term>& terms_;
};

} // namespace

void Poly::add(const Expr& e, std::int64_t times) {
  if (times == 0)
    return;
  const ExprNode& node = e.node();
  if (node.kind == ExprKind::Constant) {
    constant = checked_add(constant, checked_multiply(node.value, times));
  } else if (node.kind == ExprKind::Sum) {
    constant = checked_add(constant, checked_multiply(node.value, times));
    for (std::size_t i = 0; i < node.operands.size(); ++i)
      terms.push_back({node.operands[i], checked_multiply(node.coefficients[i], times)});
  } else {
    terms.push_back({e, times});
  }
}

void Poly::add(const Expr& monomial, const Expr& e, std::int64_t times) {
  if (monomial.is_constant()) {
    add(e, checked_multiply(monomial.node().value, times));
    return;
  }
  const Poly other(e);
  if (other.constant != 0)
    add(monomial, checked_multiply(other.constant, times));
  for (const Term& term : other.terms)
    terms.push_back(
        {multiply_monomials(monomial, term.monomial), checked_multiply(term.coefficient, times)});
}

Expr Poly::build() && {
  if (terms.size() > 1)
    sort_and_merge(terms);
  else if (terms.size() == 1 && terms[0].coefficient == 0)
    terms.clear();
  for (int steps = 0; steps < kMostSteps && !terms.empty() && Recombination(*this).step(); ++steps)
    sort_and_merge(terms);
  if (terms.empty())
    return make_constant(constant);
  if (terms.size() == 1 && constant == 0 && terms[0].coefficient == 1)
    return std::move(terms[0].monomial);
  std::vector<Expr> monomials;
  std::vector<std::int64_t> coefficients;
  monomials.reserve(terms.size());
  coefficients.reserve(terms.size());
  for (Term& term : terms) {
    monomials.push_back(std::move(term.monomial));
    coefficients.push_back(term.coefficient);
  }
  return make_sum(constant, std::move(monomials), std::move(coefficients));
}

std::size_t term_count(const Expr& e) noexcept {
  const ExprNode& node = e.node();
  if (node.kind == ExprKind::Constant)
    return 0;
  return node.kind == ExprKind::Sum ? node.operands.size() : 1;
}

Expr multiply_monomials(const Expr& a, const Expr& b) {
  if (a.is_constant())
    return b;
  if (b.is_constant())
    return a;
  const auto x = atoms_of(a), y = atoms_of(b);
  if (x.size() + y.size() > 64)
    fail(ErrorKind::Value, "expression: a product of more than 64 factors");
  std::vector<Expr> atoms;
  atoms.reserve(x.size() + y.size());
  std::merge(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(atoms), before);
  return make_product(std::move(atoms));
}

std::optional<Expr> divide_monomials(const Expr& a, const Expr& b) {
  if (b.is_constant())
    return a;
  if (a == b)
    return Expr(1);
  if (a.is_constant())
    return std::nullopt;
  const auto x = atoms_of(a), y = atoms_of(b);
  if (x.size() <= y.size())
    return std::nullopt;
  std::vector<Expr> rest;
  std::size_t matched = 0;
  for (const Expr& atom : x) {
    if (matched < y.size() && y[matched] == atom)
      ++matched;
    else
      rest.push_back(atom);
  }
  if (matched < y.size())
    return std::nullopt;
  return rest.size() == 1 ? rest[0] : make_product(std::move(rest));
}

Quotient merged_quotient(Expr numerator, Expr denominator) {
  for (;;) {
    const ExprNode& node = numerator.node();
    const bool plain = node.kind == ExprKind::FloorDiv;
    const bool shifted = node.kind == ExprKind::Sum && node.operands.size() == 1 &&
                         node.coefficients[0] == 1 &&
                         node.operands[0].node().kind == ExprKind::FloorDiv;
    if (!plain && !shifted)
      return {numerator, denominator};
    const ExprNode& inner = plain ? node : node.operands[0].node();
    const Expr divisor = inner.operands[1];
    try {
      Expr next = inner.operands[0] + Expr(plain ? 0 : node.value) * divisor;
      denominator = denominator * divisor;
      numerator = std::move(next);
    } catch (const Error&) {
      return {numerator, denominator}; // the product does not fit 64 bits
    }
  }
}

Expr product_of_sums(const Expr& a, const Expr& b) {
  const Poly x(a), y(b);
  if ((x.terms.size() + 1) * (y.terms.size() + 1) > kMostTerms)
    fail(ErrorKind::Value, "expression: a product of sums of {} and {} terms is too large",
         x.terms.size(), y.terms.size());
  Poly product;
  product.add(b, x.constant);
  for (const Term& term : x.terms)
    product.add(term.monomial, b, term.coefficient);
  return std::move(product).build();
}

} // namespace egret::expr_detail
