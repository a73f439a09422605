#include "autodiff/guards.h"

#include <cmath>
#include <limits>
#include <optional>

namespace egret::autodiff {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Value source_of_view(Value a) {
  for (;;) {
    const ir::Node& node = a.node();
    if (node.op != Op::Expand && node.op != Op::Reshape && node.op != Op::StopGradient)
      return a;
    a.id = node.inputs[0];
  }
}

Value operand(Value a, std::size_t i) {
  return {a.graph, a.node().inputs[i]};
}

/// m of a shifted exponential's -m: a maximum over `x` itself.
std::optional<Value> max_taken_off(Value a, Value x) {
  a = source_of_view(a);
  if (a.node().op != Op::Mul)
    return std::nullopt;
  for (std::size_t i : {0, 1}) {
    const Value largest = source_of_view(operand(a, i));
    if (constant_of(operand(a, 1 - i)) == -1.0 && largest.node().op == Op::ReduceMax &&
        largest.node().inputs[0] == x.id)
      return largest;
  }
  return std::nullopt;
}

/// The maximum m of x - m.
std::optional<Value> max_of_shifted(Value a) {
  if (a.node().op != Op::Add)
    return std::nullopt;
  const auto first = max_taken_off(operand(a, 0), operand(a, 1));
  return first ? first : max_taken_off(operand(a, 1), operand(a, 0));
}

/// The sum of exp(x - max(x)) along the axes of the maximum: no number, or at least 1, as one of
/// its terms is.
bool is_at_least_one(Value a) {
  a = source_of_view(a);
  if (a.node().op != Op::ReduceSum || operand(a, 0).node().op != Op::Exp)
    return false;
  const auto largest = max_of_shifted(operand(operand(a, 0), 0));
  return largest && largest->node().attrs.axes == a.node().attrs.axes;
}

/// Known to be at most 0: x - max(x), and squares times a negative number.
bool is_at_most_zero(Value a) {
  const ir::Node& node = a.node();
  if (node.op == Op::Expand || node.op == Op::Reshape)
    return is_at_most_zero(operand(a, 0));
  if (node.op == Op::Add)
    return max_of_shifted(a).has_value();
  if (node.op == Op::Mul)
    for (std::size_t i : {0, 1}) {
      const auto factor = constant_of(operand(a, i));
      const Value other = source_of_view(operand(a, 1 - i));
      if (factor && *factor < 0 && other.node().op == Op::Mul &&
          other.node().inputs[0] == other.node().inputs[1])
        return true;
    }
  return false;
}

} // namespace

Value square(Value a) {
  return a * a;
}

Value positive_or(Value a, double otherwise) {
  return select(less(full_like(a, 0), a), a, full_like(a, otherwise));
}

Value positive(Value a) {
  return positive_or(a, kInf);
}

Value nonzero(Value a) {
  if (auto known = constant_of(a); known && *known != 0)
    return a;
  if (is_at_least_one(a))
    return a;
  return select(equal(a, full_like(a, 0)), full_like(a, kInf), a);
}

Value finite_or(Value a, double otherwise) {
  return select(less(a, full_like(a, kInf)), a, full_like(a, otherwise));
}

Value finite(Value a) {
  if (auto known = constant_of(a); known && std::isfinite(*known))
    return a;
  const Value size = binary(Op::Max, a, -a);
  return select(less(size, full_like(a, kInf)), a, full_like(a, 0));
}

Value finite_exp(const Site& s) {
  return is_at_most_zero(s.a) ? s.y : finite_or(s.y, 0);
}

Value max_share(Value g, Value a, Value b) {
  return select(less(b, a), g, select(equal(a, b), g * 0.5, full_like(g, 0)));
}

} // namespace egret::autodiff
