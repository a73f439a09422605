#include "ir/index_holes.h"

#include "ir/expr_poly.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace egret::index_detail {

using namespace expr_detail;

namespace {

// Made at the first use: expressions at the start of every process would cost each command.
const Guard& never() {
  static const Guard guard{Expr(0), Expr(1), Expr(1)};
  return guard;
}

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
    return never();
  settle_ends(g);
  return g;
}

/// value % modulus of which a condition asks lo <= value % modulus < hi.
struct Wrapped {
  Expr value;
  std::int64_t modulus, lo, hi;
};
std::optional<Wrapped> wrapped(const Guard& g) {
  const ExprNode& node = g.value.node();
  if (node.kind != ExprKind::FloorMod)
    return std::nullopt;
  const auto modulus = node.operands[1].constant(), lo = g.lo.constant(), hi = g.hi.constant();
  if (!modulus || !lo || !hi)
    return std::nullopt;
  return Wrapped{node.operands[0], *modulus, *lo, *hi};
}

/// Narrows the range of a remainder by the conditions that let only multiples of a divisor of its
/// modulus pass.
void keep_multiples(Wrapped& w, const std::vector<Guard>& guards) {
  for (const Guard& g : guards) {
    const auto other = wrapped(g);
    if (!other || other->lo > 0 || other->hi != 1 || w.modulus % other->modulus != 0 ||
        !(floormod(w.value, other->modulus) == g.value))
      continue;
    w.lo = -floor_quotient(-w.lo, other->modulus) * other->modulus;
    w.hi = floor_quotient(w.hi - 1, other->modulus) * other->modulus + 1;
  }
}

/// What `e` is where x is a multiple of m: (x // m) * m is x.
Expr where_multiple(const Expr& e, const Expr& x, std::int64_t m) {
  const Expr quotient = floordiv(x, m);
  if (quotient.node().kind != ExprKind::FloorDiv)
    return e;
  Expr result = e;
  for (const Term& term : Poly(e).terms)
    if (term.monomial == quotient && term.coefficient % m == 0)
      result = result + Expr(term.coefficient / m) * x - Expr(term.coefficient) * quotient;
  return result;
}

/// Uses the conditions of the first hole that let only multiples pass. False: nothing changed.
bool use_multiples(IndexMap& map) {
  bool changed = false;
  const auto use = [&](Expr& e, const Wrapped& w) {
    const Expr simpler = where_multiple(e, w.value, w.modulus);
    changed = changed || !(simpler == e);
    e = simpler;
  };
  const std::vector<Guard> guards = map.holes[0].valid;
  for (const Guard& g : guards) {
    const auto w = wrapped(g);
    if (!w || w->lo > 0 || w->hi != 1)
      continue;
    for (Expr& c : map.coords)
      use(c, *w);
    for (Hole& hole : map.holes)
      for (Guard& other : hole.valid)
        if (!(other == g))
          use(other.value, *w);
  }
  return changed;
}

/// An axis that is alone in one term of `rest`, with the coefficient 1 or -1: of several the one
/// with the smallest coefficient in `value`, which may be in other terms of other coefficients.
std::optional<Term> lone_axis(const Expr& rest, const Expr& value) {
  std::optional<Term> best;
  std::int64_t least = 0;
  for (const Term& term : Poly(rest).terms) {
    if (!term.monomial.is_axis() || std::abs(term.coefficient) != 1)
      continue;
    const auto there = coefficient_of(value, term.monomial);
    const std::int64_t size = there ? std::abs(there->constant().value_or(0)) : 0;
    if (size == 0 || (best && size >= least))
      continue;
    best = term;
    least = size;
  }
  return best;
}

Expr put(const Expr& from, const Expr& to, const Expr& in) {
  return substitute(
      in, [&](const Expr& v) { return v == from ? std::optional<Expr>(to) : std::nullopt; });
}

/// A number that no axis of the map has.
int free_number(const IndexMap& map) {
  std::size_t number = map.dims.size();
  const auto look = [&](const Expr& e) {
    for (const Expr& v : variables_of(e))
      if (v.is_axis())
        number = std::max(number, static_cast<std::size_t>(v.axis_number()) + 1);
  };
  for (const Expr& c : map.coords)
    look(c);
  for (const Hole& hole : map.holes)
    for (const Guard& g : hole.valid)
      look(g.value);
  return static_cast<int>(number);
}

/// Writes one condition lo <= x % m < hi of the first hole as one on `rest`, x = m * q + rest,
/// where `rest` plus a multiple of m cannot be in that range but by being in it; all else is
/// simplified by what follows, x = m * q + place with lo <= place < hi. Gradients of windows are
/// made of such conditions: the windows' rows lie one after the other in a repeated axis. False:
/// there is none.
bool unwrap(IndexMap& map) {
  std::vector<Guard>& guards = map.holes[0].valid;
  for (std::size_t i = 0; i < guards.size(); ++i) {
    auto w = wrapped(guards[i]);
    if (!w)
      continue;
    keep_multiples(*w, guards);
    const Expr rest = nearest_remainder(w->value, w->modulus);
    const auto axis = lone_axis(rest, w->value);
    if (!axis || w->lo < 0 || w->hi <= w->lo || rest.lower() < w->hi - w->modulus ||
        rest.upper() >= w->lo + w->modulus)
      continue;
    const Expr place = Expr::axis(free_number(map), w->hi);
    const Expr others = rest - Expr(axis->coefficient) * axis->monomial;
    const Expr there = Expr(axis->coefficient) * (place - others);
    const auto inside = [&](const Expr& e) { return put(axis->monomial, there, e); };
    const auto back = [&](const Expr& e) { return put(place, rest, e); };
    const auto there_too = [&](const Guard& other, std::vector<Guard>& next) {
      const Guard g = simplified({inside(other.value), inside(other.lo), inside(other.hi)});
      if (!always_at_least(g) || !always_below(g))
        next.push_back({back(g.value), back(g.lo), back(g.hi)});
    };
    std::vector<Guard> next{{rest, Expr(w->lo), Expr(w->hi)}};
    for (std::size_t j = 0; j < guards.size(); ++j)
      if (j != i)
        there_too(guards[j], next);
    for (std::size_t h = 1; h < map.holes.size(); ++h) { // where the first hole's conditions hold
      std::vector<Guard> later;
      for (const Guard& other : map.holes[h].valid)
        there_too(other, later);
      map.holes[h].valid = std::move(later);
    }
    for (Expr& c : map.coords)
      c = back(inside(c));
    guards = std::move(next);
    return true;
  }
  return false;
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
        other = never();
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
    closed = std::find(open.valid.begin(), open.valid.end(), never()) != open.valid.end();
    if (closed)
      open.valid = {never()};
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
  else if (!map.holes.empty() && (unwrap(map) || use_multiples(map)))
    normalize_holes(map);
}

} // namespace egret::index_detail
