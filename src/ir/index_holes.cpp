#include "ir/index_holes.h"

#include "ir/expr_poly.h"

#include <algorithm>

namespace egret::index_detail {

using namespace expr_detail;

namespace {

const Guard kNever{Expr(0), Expr(1), Expr(1)};

bool always_at_least(const Guard& g) {
  return proves_less_equal(g.lo, g.value);
}
bool always_below(const Guard& g) {
  return proves_less(g.value, g.hi);
}
bool never_holds(const Guard& g) {
  return proves_less(g.value, g.lo) || proves_less_equal(g.hi, g.value) ||
         proves_less_equal(g.hi, g.lo);
}

bool starts_negative(const Expr& e) {
  return e.node().kind == ExprKind::Sum && e.node().coefficients[0] < 0;
}

std::int64_t content_of(const Expr& e) {
  std::int64_t content = 0;
  for (const Term& term : Poly(e).terms)
    content = common_divisor(content, term.coefficient);
  return content;
}

/// One step of simplification of a condition with some variable in its value; false when there is
/// none left.
bool simplify_once(Guard& g) {
  const ExprNode& node = g.value.node();
  if (node.kind == ExprKind::Sum && node.value != 0) {
    const Expr shift(node.value);
    g = {g.value - shift, g.lo - shift, g.hi - shift};
    return true;
  }
  if (starts_negative(g.value)) {
    g = {-g.value, 1 - g.hi, 1 - g.lo};
    return true;
  }
  if (const std::int64_t content = content_of(g.value); content > 1) {
    g = {floordiv(g.value, content), ceildiv(g.lo, content), ceildiv(g.hi, content)};
    return true;
  }
  if (node.kind == ExprKind::FloorDiv) {
    const Expr divisor = node.operands[1];
    g = {node.operands[0], g.lo * divisor, g.hi * divisor};
    return true;
  }
  return false;
}

/// value = g * high + low with 0 <= low < g and both ends multiples of g: a condition on high.
bool drop_low_part(Guard& guard) {
  const auto lo = guard.lo.constant(), hi = guard.hi.constant();
  if (!lo || !hi || guard.value.node().kind != ExprKind::Sum)
    return false;
  const bool lo_matters = !always_at_least(guard), hi_matters = !always_below(guard);
  const Poly value(guard.value);
  std::vector<std::int64_t> candidates;
  for (const Term& term : value.terms)
    candidates.push_back(common_divisor(term.coefficient, 0));
  std::sort(candidates.begin(), candidates.end(), std::greater<>());
  for (const std::int64_t g : candidates) {
    if (g == 1 || (lo_matters && floor_remainder(*lo, g) != 0) ||
        (hi_matters && floor_remainder(*hi, g) != 0))
      continue;
    Poly high, low;
    for (const Term& term : value.terms)
      (term.coefficient % g == 0 ? high : low).terms.push_back(term);
    const Expr rest = std::move(low).build();
    if (rest.lower() < 0 || rest.upper() >= g)
      continue;
    const Expr part = floordiv(std::move(high).build(), g);
    guard = {part, lo_matters ? Expr(floor_quotient(*lo, g)) : Expr(part.lower()),
             hi_matters ? Expr(floor_quotient(*hi, g)) : Expr(part.upper()) + 1};
    return true;
  }
  return false;
}

/// An end that cannot fail is written as the bound of the value, where that is a number.
void settle_ends(Guard& g) {
  if (g.value.lower() != kNoLower && always_at_least(g))
    g.lo = g.value.lower();
  if (g.value.upper() != kNoUpper && g.value.upper() != kNoUpper - 1 && always_below(g))
    g.hi = g.value.upper() + 1;
}

Guard simplified(Guard g) {
  while (!g.value.is_constant() && (simplify_once(g) || drop_low_part(g))) {
  }
  if (never_holds(g))
    return kNever;
  settle_ends(g);
  return g;
}

/// Whether `known` makes `g` hold.
bool implies(const Guard& known, const Guard& g) {
  return known.value == g.value && proves_less_equal(g.lo, known.lo) &&
         proves_less_equal(known.hi, g.hi);
}

bool guard_before(const Guard& a, const Guard& b) {
  const auto lead = [](const Expr& e) -> const Expr& {
    return e.node().kind == ExprKind::Sum ? e.node().operands[0] : e;
  };
  if (!a.value.is_constant() && !b.value.is_constant() && !(lead(a.value) == lead(b.value)))
    return before(lead(a.value), lead(b.value));
  if (a.value.hash() != b.value.hash())
    return a.value.hash() < b.value.hash();
  return a.lo.hash() != b.lo.hash() ? a.lo.hash() < b.lo.hash() : a.hi.hash() < b.hi.hash();
}

/// Adds a condition to those of one hole.
void add_guard(std::vector<Guard>& guards, const Guard& g) {
  for (Guard& other : guards)
    if (other.value == g.value) {
      other.lo = max(other.lo, g.lo);
      other.hi = min(other.hi, g.hi);
      if (never_holds(other))
        other = kNever;
      return;
    }
  guards.push_back(g);
}

} // namespace

void normalize_holes(IndexMap& map) {
  if (map.holes.empty())
    return;
  std::vector<Hole> holes;
  bool closed = false; // a hole that takes every point
  for (const Hole& hole : map.holes) {
    if (holes.empty() || !(holes.back().fill == hole.fill))
      holes.push_back({{}, hole.fill});
    Hole& open = holes.back();
    for (const Guard& raw : hole.valid) {
      const Guard g = simplified(raw);
      if (always_at_least(g) && always_below(g))
        continue;
      bool known = false;
      for (const Hole& earlier : holes)
        for (const Guard& other : earlier.valid)
          known = known || implies(other, g);
      if (!known)
        add_guard(open.valid, g);
    }
    closed = std::find(open.valid.begin(), open.valid.end(), kNever) != open.valid.end();
    if (closed)
      open.valid = {kNever};
    else if (open.valid.empty())
      holes.pop_back();
    if (closed)
      break;
  }
  for (Hole& hole : holes)
    std::sort(hole.valid.begin(), hole.valid.end(), guard_before);
  map.holes = std::move(holes);
  if (closed)
    std::fill(map.coords.begin(), map.coords.end(), Expr(0));
}

} // namespace egret::index_detail
