// Reductions and scans, and what is made of them.
#include "egret/autocast.h"
#include "support/fail.h"
#include "tensor/windows.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace egret {

using namespace detail;

namespace {

// The dtype in which integers and bools sum: i64, and u64 for unsigned ones.
Tensor summable(const Tensor& a) {
  if (is_float(a.dtype()))
    return a;
  return a.to(is_integer(a.dtype()) && !is_signed(a.dtype()) ? DType::U64 : DType::I64);
}

// A maximum of nothing is no number of the tensor.
void require_elements(const Tensor& a, const std::vector<std::int64_t>& axes, const char* who) {
  for (std::int64_t axis : axes)
    if (a.shape()[static_cast<std::size_t>(axis)] == Expr(0))
      fail(ErrorKind::Shape, "{}: axis {} of {} is empty; at least one element is needed", who,
           axis, shape_of(a));
}

// The operand in reverse order: the largest becomes the smallest. Its own inverse.
Tensor reversed_order(const Tensor& a, const char* who) {
  if (is_float(a.dtype()))
    return neg(a);
  if (a.dtype() == DType::Bool)
    return logical_not(a);
  return binary(Op::Xor, matched_nodes(a, -1, who), who);
}

Tensor scan(Op op, const Tensor& a, std::int64_t axis, const char* who) {
  Access::held(a, who);
  axis = axis_of(axis, a.rank(), a.shape(), who);
  const Tensor x = summable(a);
  return apply(op, {&x}, {.axes = {axis}}, who);
}

Tensor arg_extreme(const Tensor& a, std::optional<std::int64_t> axis, bool keepdim, bool largest,
                   const char* who) {
  Access::held(a, who);
  Tensor x = a.dtype() == DType::Bool ? a.to(DType::U8) : a;
  if (!largest)
    x = reversed_order(x, who);
  if (!axis) {
    const Shape ones(static_cast<std::size_t>(a.rank()), Expr(1));
    x = x.flatten();
    require_elements(x, {0}, who);
    const Tensor result = reduce(Op::ReduceArgMax, x, {0}, false, who);
    return keepdim ? result.reshape(ones) : result;
  }
  const std::int64_t along = axis_of(*axis, a.rank(), a.shape(), who);
  require_elements(a, {along}, who);
  return reduce(Op::ReduceArgMax, x, {along}, keepdim, who);
}

} // namespace

Tensor sum(const Operand& a, const Axes& axes, bool keepdim) {
  Access::held(a, "sum");
  const auto list = axes_of(axes, a.shape(), "sum");
  const Tensor x = autocast_type() ? widened(a) : Tensor(a);
  return reduce(Op::ReduceSum, summable(x), list, keepdim, "sum");
}

Tensor mean(const Operand& a, const Axes& axes, bool keepdim) {
  const Tensor x = as_float(a, "mean");
  const auto list = axes_of(axes, x.shape(), "mean");
  const Tensor total = reduce(Op::ReduceSum, widened(x), list, keepdim, "mean");
  return rounded_to(total / number_of(count_along(x.shape(), list), total.dtype()), x.dtype());
}

Tensor var(const Operand& a, const Axes& axes, bool keepdim, double correction) {
  const Tensor x = as_float(a, "var");
  const auto list = axes_of(axes, x.shape(), "var");
  const Expr count = count_along(x.shape(), list);
  const Tensor wide = widened(x);
  const Tensor squares = square(wide - mean(wide, list, true));
  const Tensor total = reduce(Op::ReduceSum, squares, list, keepdim, "var");
  const Tensor freedom =
      count.is_constant()
          ? constant(total.dtype(), std::max(static_cast<double>(count.value()) - correction, 0.0))
          : relu(number_of(count, total.dtype()) - correction);
  return rounded_to(total / freedom, x.dtype());
}

Tensor stddev(const Operand& a, const Axes& axes, bool keepdim, double correction) {
  const Tensor x = as_float(a, "std");
  return rounded_to(sqrt(var(widened(x), axes, keepdim, correction)), x.dtype());
}

Tensor prod(const Operand& a, const Axes& axes, bool keepdim) {
  Access::held(a, "prod");
  const auto list = axes_of(axes, a.shape(), "prod");
  return reduce(Op::ReduceProd, summable(a), list, keepdim, "prod");
}

Tensor max(const Operand& a, const Axes& axes, bool keepdim) {
  Access::held(a, "max");
  const auto list = axes_of(axes, a.shape(), "max");
  require_elements(a, list, "max");
  return reduce(Op::ReduceMax, a, list, keepdim, "max");
}

Tensor min(const Operand& a, const Axes& axes, bool keepdim) {
  Access::held(a, "min");
  const auto list = axes_of(axes, a.shape(), "min");
  require_elements(a, list, "min");
  const Tensor largest = reduce(Op::ReduceMax, reversed_order(a, "min"), list, keepdim, "min");
  return reversed_order(largest, "min");
}

Tensor argmax(const Operand& a, std::optional<std::int64_t> axis, bool keepdim) {
  return arg_extreme(a, axis, keepdim, true, "argmax");
}

Tensor argmin(const Operand& a, std::optional<std::int64_t> axis, bool keepdim) {
  return arg_extreme(a, axis, keepdim, false, "argmin");
}

Tensor any(const Operand& a, const Axes& axes, bool keepdim) {
  Access::held(a, "any");
  const auto list = axes_of(axes, a.shape(), "any");
  return reduce(Op::ReduceMax, a.to(DType::Bool), list, keepdim, "any");
}

Tensor all(const Operand& a, const Axes& axes, bool keepdim) {
  Access::held(a, "all");
  return logical_not(any(logical_not(a), axes, keepdim));
}

Tensor norm(const Operand& a, const Axes& axes, bool keepdim, double p) {
  const Tensor x = as_float(a, "norm");
  const Tensor wide = widened(x);
  const double inf = std::numeric_limits<double>::infinity();
  if (std::isnan(p))
    fail(ErrorKind::Value, "norm: p is not a number");
  Tensor result;
  if (p == 2)
    result = sqrt(sum(square(wide), axes, keepdim));
  else if (p == inf)
    result = max(abs(wide), axes, keepdim);
  else if (p == -inf)
    result = min(abs(wide), axes, keepdim);
  else if (p == 0)
    result = sum((wide != 0).to(wide.dtype()), axes, keepdim);
  else if (p == 1)
    result = sum(abs(wide), axes, keepdim);
  else
    result = pow(sum(pow(abs(wide), p), axes, keepdim), 1 / p);
  return rounded_to(result, x.dtype());
}

Tensor cumsum(const Operand& a, std::int64_t axis) {
  return scan(Op::ScanSum, a, axis, "cumsum");
}

Tensor cumprod(const Operand& a, std::int64_t axis) {
  return scan(Op::ScanProd, a, axis, "cumprod");
}

Tensor linear_recurrence(const Operand& factor, const Operand& term, std::int64_t axis,
                         bool reverse, const std::optional<Operand>& initial) {
  constexpr const char* kWho = "linear_recurrence";
  Pair pair = matched_floats(factor, term, kWho);
  Tensor &a = pair.a, &b = pair.b;
  const std::int64_t along = axis_of(axis, b.rank(), b.shape(), kWho);
  if (reverse) {
    a = flip(a, along);
    b = flip(b, along);
  }
  if (initial && !(b.shape()[static_cast<std::size_t>(along)] == Expr(0))) {
    Shape shape = b.shape();
    shape.erase(shape.begin() + along);
    const Tensor before = broadcast_to(initial->to(b.dtype()), shape, kWho).unsqueeze(along);
    const Tensor first = a.narrow(along, 0, 1) * before + b.narrow(along, 0, 1);
    b = cat({first, b.narrow(along, 1, b.shape()[static_cast<std::size_t>(along)] - Expr(1))},
            along);
  }
  const Tensor h = apply(Op::ScanLinear, {&b, &a}, {.axes = {along}}, kWho);
  return reverse ? flip(h, along) : h;
}

namespace {

// x minus its largest along the axis, which the gradient does not see: it cancels.
struct Shifted {
  Tensor x, top;
};
Shifted shifted(const Tensor& a, std::int64_t axis, const char* who) {
  const Tensor wide = widened(a);
  const Tensor highest = reduce(Op::ReduceMax, wide, {axis}, true, who);
  const Tensor top = unary(Op::StopGradient, highest, who);
  return {wide - top, top};
}

} // namespace

Tensor softmax(const Operand& a, std::int64_t axis) {
  const Tensor x = as_float(a, "softmax");
  axis = axis_of(axis, x.rank(), x.shape(), "softmax");
  const Tensor e = exp(shifted(x, axis, "softmax").x);
  return rounded_to(e / sum(e, axis, true), x.dtype());
}

Tensor log_softmax(const Operand& a, std::int64_t axis) {
  const Tensor x = as_float(a, "log_softmax");
  axis = axis_of(axis, x.rank(), x.shape(), "log_softmax");
  const Tensor low = shifted(x, axis, "log_softmax").x;
  return rounded_to(low - log(sum(exp(low), axis, true)), x.dtype());
}

Tensor logsumexp(const Operand& a, const Axes& axes, bool keepdim) {
  constexpr const char* who = "logsumexp";
  const Tensor x = as_float(a, who);
  const auto list = axes_of(axes, x.shape(), who);
  // Where the largest is infinite, x - x would be NaN; 0 is as good a shift as any.
  const Tensor wide = widened(x);
  const Tensor highest = unary(Op::StopGradient, reduce(Op::ReduceMax, wide, list, true, who), who);
  const Tensor top = where(isfinite(highest), highest, 0);
  const Tensor rest = log(sum(exp(wide - top), list, keepdim));
  return rounded_to(rest + (keepdim ? top : reshape(top, rest.shape())), x.dtype());
}

Tensor amax(const Operand& a, const Axes& axes, bool keepdim) {
  return max(a, axes, keepdim);
}
Tensor amin(const Operand& a, const Axes& axes, bool keepdim) {
  return min(a, axes, keepdim);
}

Moments var_mean(const Operand& a, const Axes& axes, bool keepdim, double correction) {
  return {var(a, axes, keepdim, correction), mean(a, axes, keepdim)};
}
Moments std_mean(const Operand& a, const Axes& axes, bool keepdim, double correction) {
  return {stddev(a, axes, keepdim, correction), mean(a, axes, keepdim)};
}

Tensor count_nonzero(const Operand& a, const Axes& axes, bool keepdim) {
  Access::held(a, "count_nonzero");
  return sum(a != 0, axes, keepdim);
}

Tensor nansum(const Operand& a, const Axes& axes, bool keepdim) {
  return sum(where(isnan(a), 0, a), axes, keepdim);
}

Tensor nanmean(const Operand& a, const Axes& axes, bool keepdim) {
  const Tensor x = as_float(a, "nanmean");
  const Tensor wide = widened(x), there = logical_not(isnan(wide));
  const Tensor total = sum(where(there, wide, 0), axes, keepdim);
  return rounded_to(total / sum(there, axes, keepdim).to(total.dtype()), x.dtype());
}

namespace {

// Positions at which an element equals what has been met so far: the last of them is the index.
Extreme with_positions(const Tensor& a, const Tensor& values, std::int64_t axis, const char* who) {
  const Tensor at = coordinate_line(a.shape(), static_cast<std::size_t>(axis));
  const Tensor met = a == values;
  const Tensor here = where(is_float(a.dtype()) ? met | isnan(a) : met, at, -1);
  return {values, apply(Op::ScanMax, {&here}, {.axes = {axis}}, who)};
}

} // namespace

Extreme cummax(const Operand& a, std::int64_t axis) {
  Access::held(a, "cummax");
  axis = axis_of(axis, a.rank(), a.shape(), "cummax");
  return with_positions(a, apply(Op::ScanMax, {&a}, {.axes = {axis}}, "cummax"), axis, "cummax");
}

Extreme cummin(const Operand& a, std::int64_t axis) {
  Access::held(a, "cummin");
  axis = axis_of(axis, a.rank(), a.shape(), "cummin");
  const Tensor turned = reversed_order(a, "cummin");
  const Tensor highest = apply(Op::ScanMax, {&turned}, {.axes = {axis}}, "cummin");
  return with_positions(a, reversed_order(highest, "cummin"), axis, "cummin");
}

// Relative to the largest element so far, m, sums follow a linear recurrence whose factors are at
// most 1: h[i] = exp(m[i-1] - m[i]) h[i-1] + exp(x[i] - m[i]). The gradient does not see m, which
// cancels in m + log(h).
Tensor logcumsumexp(const Operand& a, std::int64_t axis) {
  constexpr const char* kWho = "logcumsumexp";
  const Tensor given = as_float(a, kWho);
  axis = axis_of(axis, given.rank(), given.shape(), kWho);
  const Tensor x = widened(given);
  const Tensor largest = apply(Op::ScanMax, {&x}, {.axes = {axis}}, kWho);
  const Tensor m = unary(Op::StopGradient, largest, kWho);
  const Scalar nothing = Scalar::of(x.dtype(), -std::numeric_limits<double>::infinity());
  const Tensor before = cut(framed(m, axis, 1, 0, nothing, kWho), axis, 0,
                            x.shape()[static_cast<std::size_t>(axis)], kWho);
  // Where both are infinite, their difference is 0.
  const Tensor factor = exp(where(before == m, 0, before - m));
  const Tensor term = exp(where(isinf(m) & (x == m), 0, x - m));
  const Tensor sums = apply(Op::ScanLinear, {&term, &factor}, {.axes = {axis}}, kWho);
  return rounded_to(m + log(sums), given.dtype());
}

} // namespace egret
