// Inverses of index maps. A coordinate of a movement is a number in a mixed radix whose digits are
// axes, or quotients and remainders of them; reading its digits off gives equations for the axes.
// What comes out is kept only when it is proved to be the inverse.
#include "egret/index_map.h"
#include "ir/expr_poly.h"
#include "support/fail.h"

#include <algorithm>
#include <deque>

namespace egret {

using namespace expr_detail;

namespace {

struct Equation {
  Expr left;  ///< over the map's variables
  Expr right; ///< over the target's variables
};

/// One digit of a coordinate: coefficient * atom, or coefficient * (top - atom) when it is flipped.
struct Digit {
  Expr coefficient, atom;
  bool flipped = false;
  Expr top;
};

bool uses_axes(const Expr& e) {
  const auto all = variables_of(e);
  return std::any_of(all.begin(), all.end(), [](const Expr& v) { return v.is_axis(); });
}

/// The largest value of an atom, when it is known.
std::optional<Expr> top_of(const Expr& atom) {
  const ExprNode& node = atom.node();
  if (node.kind == ExprKind::Axis)
    return node.operands[0] - 1;
  if (node.kind == ExprKind::FloorMod)
    return node.operands[1] - 1;
  if (atom.upper() == kNoUpper)
    return std::nullopt;
  return Expr(atom.upper());
}

class Solver {
public:
  Solver(const IndexMap& map, const Shape& target) : solved_(map.dims.size()) {
    for (std::size_t j = 0; j < target.size(); ++j)
      equations_.push_back({map.coords[j], Expr::axis(static_cast<int>(j), target[j])});
    for (std::size_t i = 0; i < map.dims.size(); ++i)
      if (Expr::axis(static_cast<int>(i), map.dims[i]).is_constant())
        solved_[i] = Expr(0);
  }

  std::optional<std::vector<Expr>> solve() {
    do {
      while (!equations_.empty()) {
        const Equation equation = equations_.front();
        equations_.pop_front();
        if (!split(equation))
          return std::nullopt;
      }
    } while (join());
    std::vector<Expr> values;
    for (const auto& value : solved_) {
      if (!value)
        return std::nullopt;
      values.push_back(*value);
    }
    return values;
  }

private:
  void know(const Expr& atom, const Expr& value) {
    if (atom.is_axis())
      solved_[static_cast<std::size_t>(atom.axis_number())] = value;
    else
      known_.push_back({atom, value});
  }

  /// Reads the digits of the left side off the right one.
  bool split(const Equation& equation) {
    Expr value = equation.right;
    std::vector<Digit> digits;
    const Poly poly(equation.left);
    value = value - poly.constant;
    for (const Term& term : poly.terms) {
      std::optional<Expr> atom;
      for (const Expr& factor : atoms_of(term.monomial))
        if (uses_axes(factor)) {
          if (atom)
            return false;
          atom = factor;
        }
      if (!atom) {
        value = value - Expr(term.coefficient) * term.monomial;
        continue;
      }
      Digit digit{Expr(term.coefficient) * *divide_monomials(term.monomial, *atom), *atom};
      if (digit.coefficient.upper() < 0) {
        const auto top = top_of(*atom);
        if (!top)
          return false;
        digit.flipped = true;
        digit.top = *top;
        value = value - digit.coefficient * digit.top;
        digit.coefficient = -digit.coefficient;
      }
      digits.push_back(std::move(digit));
    }
    if (digits.empty())
      return true;
    std::stable_sort(digits.begin(), digits.end(), [](const Digit& a, const Digit& b) {
      return larger(a.coefficient, b.coefficient);
    });
    if (!(digits.back().coefficient == Expr(1)))
      return false;
    for (std::size_t i = 0; i < digits.size(); ++i) {
      const Expr& coefficient = digits[i].coefficient;
      if (coefficient.lower() < 1)
        return false;
      Expr read = floordiv(value, coefficient);
      if (i > 0) {
        const Expr& above = digits[i - 1].coefficient;
        const Expr radix = floordiv(above, coefficient);
        if (!(radix * coefficient == above))
          return false;
        read = floormod(read, radix);
      }
      know(digits[i].atom, digits[i].flipped ? digits[i].top - read : read);
    }
    return true;
  }

  /// Whether a comes before b among the coefficients of a mixed radix. Symbolic ones are compared
  /// by divisibility.
  static bool larger(const Expr& a, const Expr& b) {
    if (a.is_constant() && b.is_constant())
      return a.value() > b.value();
    if (a == b || a.lower() < 1 || b.lower() < 1)
      return false;
    return floormod(a, b) == Expr(0) && !(floormod(b, a) == Expr(0));
  }

  /// From x // m and x % m to x.
  bool join() {
    for (std::size_t i = 0; i < known_.size(); ++i) {
      const Equation remainder = known_[i];
      const ExprNode& node = remainder.left.node();
      if (node.kind != ExprKind::FloorMod)
        continue;
      const Expr quotient = floordiv(node.operands[0], node.operands[1]);
      for (std::size_t j = 0; j < known_.size(); ++j) {
        if (!(known_[j].left == quotient))
          continue;
        equations_.push_back(
            {node.operands[0], node.operands[1] * known_[j].right + remainder.right});
        known_.erase(known_.begin() + static_cast<std::ptrdiff_t>(std::max(i, j)));
        known_.erase(known_.begin() + static_cast<std::ptrdiff_t>(std::min(i, j)));
        return true;
      }
    }
    return false;
  }

  std::deque<Equation> equations_;
  std::vector<Equation> known_; ///< values of quotients and remainders
  std::vector<std::optional<Expr>> solved_;
};

bool has_no_points(const Shape& dims) {
  return element_count(dims) == Expr(0);
}

} // namespace

std::optional<IndexMap> inverse(const IndexMap& map, const Shape& target) {
  ensure(map.coords.size() == target.size(), "inverse: {} coordinates for {}", map.coords.size(),
         to_string(target));
  if (!map.holes.empty())
    return std::nullopt;
  if (has_no_points(map.dims) && has_no_points(target))
    return IndexMap{target, std::vector<Expr>(map.dims.size()), {}};
  // As many points on both sides, every point inside the target, and every point found again: a
  // bijection.
  if (!proves_equal(element_count(map.dims), element_count(target)))
    return std::nullopt;
  for (std::size_t j = 0; j < target.size(); ++j)
    if (!proves_less_equal(0, map.coords[j]) || !proves_less(map.coords[j], target[j]))
      return std::nullopt;
  auto values = Solver(map, target).solve();
  if (!values)
    return std::nullopt;
  IndexMap back{target, std::move(*values), {}};
  if (!compose(map, back).is_identity())
    return std::nullopt;
  return back;
}

} // namespace egret
