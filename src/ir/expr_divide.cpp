// Floor quotients and remainders in normal form. Both are made from one division, so that their
// atoms match and can be put together again.
#include "ir/expr_poly.h"
#include "support/fail.h"

#include <algorithm>

namespace egret {

namespace expr_detail {

namespace {

/// Simplification calls itself for parts of its operand; beyond this depth an atom is made of what
/// is left.
constexpr int kDeepestDivision = 48;
thread_local int depth = 0;
struct Deeper {
  Deeper() { ++depth; }
  ~Deeper() { --depth; }
};

/// One term of an expression, or its constant with the monomial 1.
std::optional<Term> single_term(const Expr& e) {
  const ExprNode& node = e.node();
  if (node.kind == ExprKind::Constant)
    return Term{Expr(1), node.value};
  if (node.kind != ExprKind::Sum)
    return Term{e, 1};
  if (node.value == 0 && node.operands.size() == 1)
    return Term{node.operands[0], node.coefficients[0]};
  return std::nullopt;
}

/// x // m where no rule for sums applies.
Expr quotient_atom(const Expr& x, const Expr& m) {
  const Quotient merged = merged_quotient(x, m);
  if (!(merged.denominator == m))
    return floordiv(merged.numerator, merged.denominator);
  // (y % (m * n)) // m is (y // m) % n.
  if (x.node().kind == ExprKind::FloorMod) {
    const auto modulus = single_term(x.node().operands[1]), divisor = single_term(m);
    if (modulus && divisor && divisor->coefficient > 0 &&
        modulus->coefficient % divisor->coefficient == 0)
      if (const auto rest = divide_monomials(modulus->monomial, divisor->monomial))
        return floormod(floordiv(x.node().operands[0], m),
                        Expr(modulus->coefficient / divisor->coefficient) * *rest);
  }
  return make_binary(ExprKind::FloorDiv, x, m);
}

/// monomial / d for a d that divides monomial.divisor().
Expr exact_quotient(const Expr& monomial, std::int64_t d) {
  Expr result(1);
  for (const Expr& atom : atoms_of(monomial)) {
    const std::int64_t part = common_divisor(d, atom.divisor());
    d /= part;
    result = result * (part == 1 ? atom : quotient_atom(atom, part));
  }
  ensure(d == 1, "exact_quotient: {} is left over", d);
  return result;
}

std::int64_t truncated_quotient(std::int64_t a, std::int64_t b) {
  return b == -1 ? checked_negate(a) : a / b;
}

/// x = quotient * m + remainder, not yet with 0 <= remainder < m.
struct Division {
  Expr quotient, remainder;
};

/// Takes multiples of a single term (or number) m out of x, term by term, rounding coefficients
/// toward 0.
Division divide_terms(const Expr& x, const Term& m) {
  const Poly source(x);
  Poly quotient, remainder;
  const bool number = m.monomial.is_constant();
  if (number) {
    quotient.constant = floor_quotient(source.constant, m.coefficient);
    remainder.constant = floor_remainder(source.constant, m.coefficient);
  } else {
    remainder.constant = source.constant;
  }
  for (const Term& term : source.terms) {
    const std::int64_t times = truncated_quotient(term.coefficient, m.coefficient);
    const auto rest = times * m.coefficient == term.coefficient
                          ? divide_monomials(term.monomial, m.monomial)
                          : std::nullopt;
    if (rest)
      quotient.add(*rest, times);
    else
      remainder.terms.push_back(term);
  }
  return {std::move(quotient).build(), std::move(remainder).build()};
}

/// Takes a multiple of a number m out of every coefficient of x, the one below or (`nearest`) the
/// nearest: 31 i + j is 30 i and i + j beside the divisor 30, so that windows, which are rows of a
/// repeated axis, are affine.
Division divide_coefficients(const Expr& x, std::int64_t m, bool nearest) {
  const Poly source(x);
  Poly quotient, remainder;
  quotient.constant = floor_quotient(source.constant, m);
  remainder.constant = floor_remainder(source.constant, m);
  for (const Term& term : source.terms) {
    std::int64_t times = floor_quotient(term.coefficient, m);
    if (nearest && floor_remainder(term.coefficient, m) > m / 2)
      times = checked_add(times, 1);
    quotient.add(term.monomial, times);
    remainder.add(term.monomial, checked_add(term.coefficient, -checked_multiply(times, m)));
  }
  return {std::move(quotient).build(), std::move(remainder).build()};
}

/// Polynomial division by a sum, by its leading term; the remainder has fewer terms than x.
std::optional<Division> divide_by_sum(const Expr& x, const Expr& m) {
  const Term lead{m.node().operands[0], m.node().coefficients[0]};
  Expr quotient, remainder = x;
  for (int step = 0; step < 16; ++step) {
    const Poly left(remainder);
    std::optional<Expr> part;
    for (const Term& term : left.terms)
      if (const auto times = truncated_quotient(term.coefficient, lead.coefficient); times != 0)
        if (auto rest = divide_monomials(term.monomial, lead.monomial)) {
          part = Expr(times) * *rest;
          break;
        }
    if (!part)
      break;
    quotient = quotient + *part;
    remainder = remainder - *part * m;
  }
  if (term_count(remainder) >= term_count(x))
    return std::nullopt;
  return Division{quotient, remainder};
}

/// floor(x / m) when every value of x leads to the same one.
std::optional<std::int64_t> constant_quotient(const Range& x, std::int64_t m) {
  if (x.lower == kNoLower || x.upper == kNoUpper)
    return std::nullopt;
  const std::int64_t low = floor_quotient(x.lower, m);
  if (low != floor_quotient(x.upper, m))
    return std::nullopt;
  return low;
}

/// x = g * high + low with 0 <= low < g and g a divisor of m, so that x // m = high // (m / g) and
/// x % m = g * (high % (m / g)) + low.
struct Split {
  Expr high, low, g;
};

std::optional<Split> split_by_number(const Poly& x, std::int64_t m) {
  std::vector<std::int64_t> candidates;
  for (const Term& term : x.terms) {
    const std::int64_t g =
        common_divisor(m, product_divisor(term.coefficient, term.monomial.divisor()));
    if (g > 1)
      candidates.push_back(g);
  }
  std::sort(candidates.begin(), candidates.end(), std::greater<>());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  for (const std::int64_t g : candidates) {
    Range range{floor_remainder(x.constant, g), floor_remainder(x.constant, g)};
    Poly high, low;
    bool exact = true; // only coefficients are divided, not monomials
    for (const Term& term : x.terms) {
      if (product_divisor(term.coefficient, term.monomial.divisor()) % g != 0) {
        low.terms.push_back(term);
        range = sum_of(range,
                       product_of(range_of(term.monomial), {term.coefficient, term.coefficient}));
      } else {
        high.terms.push_back(term);
        exact = exact && term.coefficient % g == 0;
      }
    }
    const auto shift = constant_quotient(range, g);
    if (!shift)
      continue;
    low.constant = checked_add(floor_remainder(x.constant, g), -checked_multiply(*shift, g));
    // Dividing the monomials alone by a part of m would only rename the quotient.
    if (!exact && g != m && low.terms.empty() && low.constant == 0)
      continue;
    Poly divided;
    divided.constant = checked_add(floor_quotient(x.constant, g), *shift);
    for (const Term& term : high.terms) {
      const std::int64_t part = common_divisor(term.coefficient, g);
      divided.add(part == g ? term.monomial : exact_quotient(term.monomial, g / part),
                  term.coefficient / part);
    }
    return Split{std::move(divided).build(), std::move(low).build(), g};
  }
  return std::nullopt;
}

std::optional<Split> split_by_term(const Poly& x, const Term& m) {
  int tried = 0;
  std::vector<Expr> seen;
  for (const Term& term : x.terms) {
    // g: the factors that the term has in common with m.
    std::vector<Expr> common;
    const auto a = atoms_of(term.monomial), b = atoms_of(m.monomial);
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common),
                          before);
    Term g{Expr(1), common_divisor(term.coefficient, m.coefficient)};
    for (const Expr& atom : common)
      g.monomial = multiply_monomials(g.monomial, atom);
    const Expr size = Expr(g.coefficient) * g.monomial;
    if (size == Expr(1) || size.lower() < 1 ||
        std::find(seen.begin(), seen.end(), size) != seen.end())
      continue;
    seen.push_back(size);
    if (++tried > 4)
      break;
    Poly high, low;
    low.constant = x.constant;
    for (const Term& other : x.terms) {
      const auto rest = other.coefficient % g.coefficient != 0
                            ? std::nullopt
                            : divide_monomials(other.monomial, g.monomial);
      if (rest)
        high.add(*rest, other.coefficient / g.coefficient);
      else
        low.terms.push_back(other);
    }
    const Expr rest = std::move(low).build();
    if (rest.upper() < 0 || !proves_less_equal(0, rest) || !proves_less(rest, size))
      continue;
    return Split{std::move(high).build(), rest, size};
  }
  return std::nullopt;
}

/// x % m where no rule for quotients applies: remainders of multiples of m inside x are dropped.
Expr remainder_atom(const Expr& x, const Expr& m) {
  const auto divisor = single_term(m);
  if (divisor) {
    const Poly source(x);
    for (std::size_t i = 0; i < source.terms.size(); ++i) {
      const Term& term = source.terms[i];
      for (const Expr& atom : atoms_of(term.monomial)) {
        if (atom.node().kind != ExprKind::FloorMod)
          continue;
        const Expr times = Expr(term.coefficient) * *divide_monomials(term.monomial, atom);
        const auto inner = single_term(times * atom.node().operands[1]);
        if (!inner || inner->coefficient % divisor->coefficient != 0 ||
            !divide_monomials(inner->monomial, divisor->monomial))
          continue;
        return floormod(x - times * atom + times * atom.node().operands[0], m);
      }
    }
  }
  return make_binary(ExprKind::FloorMod, x, m);
}

enum class Want { Quotient, Remainder };

/// m is positive.
Expr divide(const Expr& x, const Expr& m, Want want) {
  const bool quotient = want == Want::Quotient;
  const auto number = m.constant();
  if (number && *number == 1)
    return quotient ? x : Expr(0);
  if (x == m)
    return quotient ? Expr(1) : Expr(0);
  if (const auto value = x.constant(); value && number)
    return quotient ? floor_quotient(*value, *number) : floor_remainder(*value, *number);
  if (x.lower() >= 0 && x.upper() < m.lower())
    return quotient ? Expr(0) : x;
  if (depth >= kDeepestDivision)
    return make_binary(quotient ? ExprKind::FloorDiv : ExprKind::FloorMod, x, m);
  const Deeper deeper;
  if (!number && proves_less_equal(0, x) && proves_less(x, m))
    return quotient ? Expr(0) : x;

  Division division{Expr(0), x};
  const auto divisor = single_term(m);
  if (divisor)
    division = divide_terms(x, *divisor);
  else if (auto by_sum = divide_by_sum(x, m))
    division = std::move(*by_sum);
  const Expr& rest = division.remainder;

  if (number) {
    if (const auto k = constant_quotient(range_of(rest), *number))
      return quotient ? division.quotient + Expr(*k) : rest - Expr(*k) * m;
    for (const bool nearest : {true, false}) {
      const Division each = divide_coefficients(x, *number, nearest);
      if (const auto k = constant_quotient(range_of(each.remainder), *number))
        return quotient ? each.quotient + Expr(*k) : each.remainder - Expr(*k) * m;
    }
  } else if (proves_less_equal(0, rest)) {
    if (proves_less(rest, m))
      return quotient ? division.quotient : rest;
  } else if (proves_less(rest, 0) && proves_less_equal(0, rest + m)) {
    return quotient ? division.quotient - 1 : rest + m;
  }

  if (divisor) {
    const Poly poly(rest);
    const auto split = number ? split_by_number(poly, *number) : split_by_term(poly, *divisor);
    if (split) {
      const Expr part = number ? Expr(*number / split->g.value())
                               : divide_terms(m, *single_term(split->g)).quotient;
      if (quotient)
        return division.quotient + divide(split->high, part, want);
      return split->g * divide(split->high, part, want) + split->low;
    }
  }
  return quotient ? division.quotient + quotient_atom(rest, m) : remainder_atom(rest, m);
}

/// Sign of a divisor: 1, -1, or Error(Value) when it may be 0.
int divisor_sign(const Expr& m, const char* operation) {
  if (m.lower() >= 1 || (m.upper() > 0 && proves_less(0, m)))
    return 1;
  if (m.upper() <= -1 || proves_less(m, 0))
    return -1;
  fail(ErrorKind::Value, "{}: the divisor {} may be 0; it lies in [{}, {}]", operation, m.str(),
       m.lower(), m.upper());
}

} // namespace

Expr nearest_remainder(const Expr& x, std::int64_t m) {
  return divide_coefficients(x, m, true).remainder;
}

} // namespace expr_detail

Expr floordiv(const Expr& a, const Expr& b) {
  using namespace expr_detail;
  const bool positive = divisor_sign(b, "floordiv") > 0;
  return divide(positive ? a : -a, positive ? b : -b, Want::Quotient);
}

Expr floormod(const Expr& a, const Expr& b) {
  using namespace expr_detail;
  if (divisor_sign(b, "floormod") > 0)
    return divide(a, b, Want::Remainder);
  return -divide(-a, -b, Want::Remainder);
}

Expr ceildiv(const Expr& a, const Expr& b) {
  using namespace expr_detail;
  if (divisor_sign(b, "ceildiv") > 0)
    return floordiv(a + (b - 1), b);
  return floordiv(-a + (-b - 1), -b);
}

} // namespace egret
