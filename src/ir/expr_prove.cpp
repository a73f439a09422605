// Proofs of inequalities: an expression is bounded from below by putting, for one atom after the
// other, the end of its range that makes the expression smallest. Ends may be symbolic (an axis is
// at most its extent - 1), so n - d0 - 1 >= 0 is found for 0 <= d0 < n.
#include "egret/error.h"
#include "ir/expr_poly.h"

#include <algorithm>

namespace egret {

namespace expr_detail {

namespace {

constexpr int kMostProofSteps = 48; // substitutions in one proof
constexpr int kDeepest = 2; // proofs inside a proof (a quotient's bound is a quotient, whose
                            // simplification proves things)
thread_local int proving = 0;

/// e = coefficient * atom + rest. Where the atom has a higher power, the coefficient keeps what is
/// left of it.
struct Affine {
  Expr coefficient, rest;
};

Affine affine_in(const Expr& e, const Expr& atom) {
  Poly coefficient, rest;
  const Poly source(e);
  rest.constant = source.constant;
  for (const Term& term : source.terms) {
    if (const auto other = divide_monomials(term.monomial, atom))
      coefficient.add(*other, term.coefficient);
    else
      rest.terms.push_back(term);
  }
  return {std::move(coefficient).build(), std::move(rest).build()};
}

int priority(const Expr& atom) noexcept {
  switch (atom.node().kind) {
  case ExprKind::Min:
  case ExprKind::Max:
    return 0;
  case ExprKind::Axis:
    return 1;
  case ExprKind::FloorDiv:
  case ExprKind::FloorMod:
    return 2;
  default:
    return 3;
  }
}

/// The factors of the terms of e, each once, in the order in which they are to be bounded.
std::vector<Expr> atoms_in(const Expr& e) {
  std::vector<Expr> atoms;
  for (const Term& term : Poly(e).terms)
    for (const Expr& atom : atoms_of(term.monomial))
      if (std::find(atoms.begin(), atoms.end(), atom) == atoms.end())
        atoms.push_back(atom);
  std::stable_sort(atoms.begin(), atoms.end(),
                   [](const Expr& a, const Expr& b) { return priority(a) < priority(b); });
  return atoms;
}

/// The largest or smallest value of e with its axes at the end that makes it so; other atoms stay.
Expr with_axes_at_end(Expr e, bool largest) {
  for (const Expr& atom : atoms_in(e)) {
    if (!atom.is_axis())
      continue;
    const Affine parts = affine_in(e, atom);
    const bool rising = parts.coefficient.lower() >= 0, falling = parts.coefficient.upper() <= 0;
    if (rising || falling)
      e = (rising == largest ? parts.coefficient * (atom.node().operands[0] - 1) : Expr(0)) +
          parts.rest;
  }
  return e;
}

class Proof {
public:
  /// Whether e >= 0 for all values of its variables; false when that is not found.
  bool nonnegative(const Expr& e) {
    if (e.lower() >= 0)
      return true;
    if (e.upper() < 0 || ++steps_ > kMostProofSteps)
      return false;
    for (const Expr& atom : atoms_in(e)) {
      const Affine parts = affine_in(e, atom);
      const bool rising = parts.coefficient.lower() >= 0;
      if (!rising && parts.coefficient.upper() > 0)
        continue;
      const auto with = [&](const Expr& value) { return parts.coefficient * value + parts.rest; };
      const ExprNode& node = atom.node();
      switch (node.kind) {
      case ExprKind::Axis:
        return nonnegative(with(rising ? Expr(0) : node.operands[0] - 1));
      case ExprKind::FloorMod:
        return nonnegative(with(rising ? Expr(0) : node.operands[1] - 1));
      case ExprKind::FloorDiv:
        return quotient(parts, atom, rising);
      case ExprKind::Min:
      case ExprKind::Max: {
        // A minimum is one of its operands, and no larger than either.
        const Expr a = with(node.operands[0]), b = with(node.operands[1]);
        if ((node.kind == ExprKind::Min) == rising)
          return nonnegative(a) && nonnegative(b);
        return nonnegative(a) || nonnegative(b);
      }
      default: {
        const std::int64_t end = rising ? node.lower : node.upper;
        if (end == (rising ? kNoLower : kNoUpper))
          continue;
        return nonnegative(with(end));
      }
      }
    }
    return false;
  }

private:
  bool quotient(const Affine& parts, const Expr& atom, bool rising) {
    const Expr &x = atom.node().operands[0], &m = atom.node().operands[1];
    const Expr end = with_axes_at_end(x, !rising);
    if (!(end == x) && proving < kDeepest &&
        nonnegative(parts.coefficient * floordiv(end, m) + parts.rest))
      return true;
    // m * (x // m) lies in [x - m + 1, x].
    if (proving < kDeepest) {
      const Expr times = floordiv(parts.coefficient, m);
      if (times * m == parts.coefficient)
        return nonnegative(times * (rising ? x - m + 1 : x) + parts.rest);
    }
    const std::int64_t bound = rising ? atom.lower() : atom.upper();
    if (bound == (rising ? kNoLower : kNoUpper))
      return false;
    return nonnegative(parts.coefficient * bound + parts.rest);
  }

  int steps_ = 0;
};

/// Whether b - a >= least for all values of the variables.
bool proves_difference(const Expr& a, const Expr& b, std::int64_t least) {
  if (proving >= kDeepest)
    return false;
  struct Scope {
    Scope() { ++proving; }
    ~Scope() { --proving; }
  } const scope;
  try {
    return Proof().nonnegative(b - a - least);
  } catch (const Error&) {
    return false; // numbers near the ends of 64 bits: nothing is proved
  }
}

} // namespace

} // namespace expr_detail

bool proves_less_equal(const Expr& a, const Expr& b) {
  if (a == b || (a.upper() <= b.lower() && a.upper() != expr_detail::kNoUpper))
    return true;
  if (a.lower() > b.upper())
    return false;
  return expr_detail::proves_difference(a, b, 0);
}

bool proves_less(const Expr& a, const Expr& b) {
  if (a.upper() < b.lower())
    return true;
  if (a.lower() >= b.upper())
    return false;
  return expr_detail::proves_difference(a, b, 1);
}

bool proves_equal(const Expr& a, const Expr& b) {
  return a == b || (proves_less_equal(a, b) && proves_less_equal(b, a));
}

} // namespace egret
