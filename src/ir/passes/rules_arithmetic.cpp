// Identities of numbers. What holds for integers only says so: x + 0 is not x for the float -0, and
// x * 0 is not 0 for NaN.
#include "ir/passes/rules.h"

#include <cmath>

namespace egret::passes {
namespace {

bool on_integers(const Site& s) {
  return is_integer(s.dtype);
}

/// For (x op c) op d with known c and d: x, c and d.
struct Nested {
  NodeId x = kNo;
  Scalar c, d;
};
Nested nested(const Site& s) {
  for (std::size_t i : {0u, 1u}) {
    auto d = s.known(1 - i);
    if (!d || !s.operand_is(i, s.op))
      continue;
    const ir::Node& inner = s.operand(i);
    for (std::size_t j : {0u, 1u})
      if (auto c = ir::known_value(s.out, inner.inputs[1 - j]))
        return {inner.inputs[j], *c, *d};
  }
  return {};
}

NodeId merged(const Site& s, const Nested& n) {
  Scalar both[] = {n.c, n.d};
  return s.out.binary(s.op, n.x, s.filled(egret::apply(s.op, s.dtype, both)));
}

bool is_unit(const Scalar& s) {
  return std::fabs(s.as_double()) == 1;
}

/// The exact reciprocal of a power of two, if the dtype has it.
std::optional<double> exact_reciprocal(const Scalar& s) {
  int exponent = 0;
  double value = s.as_double();
  if (!std::isfinite(value) || std::fabs(std::frexp(value, &exponent)) != 0.5)
    return std::nullopt;
  double inverse = 1 / value;
  if (!std::isfinite(inverse) || Scalar::of(s.dtype, inverse).as_double() != inverse)
    return std::nullopt;
  return inverse;
}

/// x of f(x) - f(x) with a bounded f, of which only that is left which is NaN; kNo of other sums.
NodeId cancelled_argument(const Site& s) {
  for (std::size_t i : {0u, 1u}) {
    const ir::Node& f = s.operand(i);
    const bool bounded = f.op == Op::Erf || f.op == Op::Tanh;
    if (!bounded || !s.operand_is(1 - i, Op::Mul))
      continue;
    const ir::Node& other = s.operand(1 - i);
    for (std::size_t j : {0u, 1u})
      if (auto c = ir::known_value(s.out, other.inputs[1 - j]);
          c && c->as_double() == -1 && other.inputs[j] == s.in[i])
        return f.inputs[0];
  }
  return kNo;
}

constexpr Rule kArithmeticRules[] = {
    {Op::Mul, "x * 1 = x", [](const Site& s) { return beside(s, 1); }},
    {Op::Mul, "x * 0 = 0 (integers)",
     [](const Site& s) { return on_integers(s) && beside(s, 0) != kNo ? s.filled(0) : kNo; }},
    {Op::Mul, "(x * c) * d = x * (c * d) (integers; floats where c or d is 1 or -1)",
     [](const Site& s) {
       Nested n = nested(s);
       return n.x != kNo && (on_integers(s) || is_unit(n.c) || is_unit(n.d)) ? merged(s, n) : kNo;
     }},
    {Op::Add, "x + 0 = x (integers; floats: x + -0 = x)",
     [](const Site& s) { return beside(s, on_integers(s) ? 0.0 : -0.0); }},
    {Op::Add, "(x + c) + d = x + (c + d) (integers)",
     [](const Site& s) {
       Nested n = nested(s);
       return n.x != kNo && on_integers(s) ? merged(s, n) : kNo;
     }},
    {Op::Add, "f(x) - f(x) = c - c with c = x within -1 .. 1 (f one of erf, tanh)",
     [](const Site& s) {
       const NodeId x = cancelled_argument(s);
       if (x == kNo)
         return kNo;
       const NodeId minus = s.filled(-1);
       const auto negative = [&](NodeId a) { return s.out.binary(Op::Mul, a, minus); };
       const NodeId above = s.out.binary(Op::Max, x, minus);
       const NodeId c = s.out.binary(Op::Max, negative(above), minus);
       return s.out.binary(Op::Add, c, negative(c));
     }},
    {Op::Div, "x / c = x * (1/c) (c a power of two with a reciprocal)",
     [](const Site& s) {
       auto c = s.known(1);
       auto inverse = c ? exact_reciprocal(*c) : std::nullopt;
       if (!inverse)
         return kNo;
       return *inverse == 1 ? s.in[0] : s.out.binary(Op::Mul, s.in[0], s.filled(*inverse));
     }},
    {Op::IDiv, "x // 1 = x", [](const Site& s) { return s.is(1, 1) ? s.in[0] : kNo; }},
    {Op::Mod, "x mod 1 = 0 (integers)",
     [](const Site& s) { return on_integers(s) && s.is(1, 1) ? s.filled(0) : kNo; }},
    {Op::Max, "max(x, x) = x", same},
    {Op::Max, "max(x, lowest) = x",
     [](const Site& s) {
       Scalar lowest = identity_of(Monoid::Max, s.dtype);
       return s.known(1) == lowest ? s.in[0] : s.known(0) == lowest ? s.in[1] : kNo;
     }},
    {Op::Max, "max(max(x, c), d) = max(x, max(c, d))",
     [](const Site& s) {
       Nested n = nested(s);
       return n.x != kNo ? merged(s, n) : kNo;
     }},
    {Op::Pow, "pow(x, 0) = 1",
     [](const Site& s) { return s.is(1, 0) || s.is(1, -0.0) ? s.filled(1) : kNo; }},
    {Op::Pow, "pow(x, 1) = x", [](const Site& s) { return s.is(1, 1) ? s.in[0] : kNo; }},
    {Op::Pow, "pow(x, 2) = x * x",
     [](const Site& s) { return s.is(1, 2) ? s.out.binary(Op::Mul, s.in[0], s.in[0]) : kNo; }},
    {Op::Pow, "pow(x, -1) = recip(x)",
     [](const Site& s) { return s.is(1, -1) ? s.out.unary(Op::Recip, s.in[0]) : kNo; }},
    {Op::Floor, "floor of floor or trunc = the inner one",
     [](const Site& s) {
       return s.operand_is(0, Op::Floor) || s.operand_is(0, Op::Trunc) ? s.in[0] : kNo;
     }},
    {Op::Trunc, "trunc of floor or trunc = the inner one",
     [](const Site& s) {
       return s.operand_is(0, Op::Floor) || s.operand_is(0, Op::Trunc) ? s.in[0] : kNo;
     }},
};

} // namespace

std::span<const Rule> arithmetic_rules() {
  return kArithmeticRules;
}

} // namespace egret::passes
