// Differences, integrals, histograms and covariances.
#include "egret/functional/indices.h"

#include "support/fail.h"
#include "tensor/ops.h"

namespace egret {

using namespace detail;

namespace {

// The indices of neighbours along an axis: all but the first, all but the last.
struct Neighbours {
  Tensor later, earlier;
};
Neighbours neighbours(const Tensor& a, std::int64_t axis) {
  const Expr& n = a.shape()[static_cast<std::size_t>(axis)];
  return {a.narrow(axis, 1, n - 1), a.narrow(axis, 0, n - 1)};
}

std::int64_t line_axis(const Tensor& a, std::int64_t axis, const char* who) {
  Access::held(a, who);
  axis = axis_of(axis, a.rank(), a.shape(), who);
  if (!proves_less_equal(1, a.shape()[static_cast<std::size_t>(axis)]))
    fail(ErrorKind::Shape, "{}: axis {} of {} is empty; at least one element is needed", who, axis,
         shape_of(a));
  return axis;
}

// Areas between neighbours; `x` empty: of width dx.
Tensor areas(const Tensor& a, const Tensor& x, double dx, std::int64_t axis, const char* who) {
  const auto [later, earlier] = neighbours(widened(as_float(a, who)), axis);
  const Tensor both = later + earlier;
  if (!x.defined())
    return both * (dx / 2);
  Access::held(x, who);
  Tensor line = x;
  if (x.rank() == 1 && a.rank() > 1) {
    Shape shape(a.shape().size(), Expr(1));
    shape[static_cast<std::size_t>(axis)] = x.shape()[0];
    line = reshape(x, shape);
  }
  const auto along = static_cast<std::size_t>(axis);
  if (!broadcasts_to(line.shape(), a.shape()) || line.rank() != a.rank() ||
      !(line.shape()[along] == a.shape()[along]))
    fail(ErrorKind::Shape, "{}: places {} do not fit {} along axis {}", who, shape_of(x),
         shape_of(a), axis);
  const auto [to, from] = neighbours(as_float(line, who).to(both.dtype()), axis);
  return both * (to - from) * 0.5;
}

Tensor integral(const Tensor& a, const Tensor& x, double dx, std::int64_t axis, bool running,
                const char* who) {
  axis = line_axis(a, axis, who);
  const Tensor parts = areas(a, x, dx, axis, who);
  return rounded_to(running ? cumsum(parts, axis) : sum(parts, axis), as_float(a, who).dtype());
}

} // namespace

Tensor diff(const Operand& a, std::int64_t times, std::int64_t axis) {
  Access::held(a, "diff");
  axis = axis_of(axis, a.rank(), a.shape(), "diff");
  if (times < 0)
    fail(ErrorKind::Value, "diff: {} times; the number must not be negative", times);
  Tensor result = a.clone();
  for (std::int64_t i = 0; i < times; ++i) {
    if (result.shape()[static_cast<std::size_t>(axis)] == Expr(0))
      break;
    const auto [later, earlier] = neighbours(result, axis);
    result = a.dtype() == DType::Bool ? later ^ earlier : later - earlier;
  }
  return result;
}

Tensor trapezoid(const Operand& a, double dx, std::int64_t axis) {
  return integral(a, {}, dx, axis, false, "trapezoid");
}
Tensor trapezoid(const Operand& a, const Operand& x, std::int64_t axis) {
  Access::held(x, "trapezoid");
  return integral(a, x, 1, axis, false, "trapezoid");
}
Tensor cumulative_trapezoid(const Operand& a, double dx, std::int64_t axis) {
  return integral(a, {}, dx, axis, true, "cumulative_trapezoid");
}
Tensor cumulative_trapezoid(const Operand& a, const Operand& x, std::int64_t axis) {
  Access::held(x, "cumulative_trapezoid");
  return integral(a, x, 1, axis, true, "cumulative_trapezoid");
}

Tensor histc(const Operand& a, std::int64_t bins, double low, double high) {
  constexpr const char* who = "histc";
  Access::held(a, who);
  if (bins < 1)
    fail(ErrorKind::Value, "{}: {} bins; at least 1 is needed", who, bins);
  if (!(low <= high) || !std::isfinite(low) || !std::isfinite(high))
    fail(ErrorKind::Value, "{}: from {} to {}; the range is finite and not backwards", who, low,
         high);
  const Tensor x = widened(as_float(a.detach(), who)).flatten();
  Tensor from = constant(x.dtype(), low), to = constant(x.dtype(), high);
  if (low == high) {
    if (proves_less_equal(1, x.shape()[0])) {
      from = min(x);
      to = max(x);
    }
    const Tensor flat = from == to;
    from = where(flat, from - 1, from);
    to = where(flat, to + 1, to);
  }
  const Tensor in = (x >= from) & (x <= to);
  const Tensor place = floor((where(in, x, from) - from) / (to - from) * static_cast<double>(bins));
  const Tensor bin = minimum(place.to(DType::I64), bins - 1);
  return bincount(where(in, bin, -1), bins).to(a.dtype());
}

Tensor cov(const Operand& a, double correction) {
  const Tensor given = as_float(a, "cov");
  if (given.rank() > 2)
    fail(ErrorKind::Shape, "cov: got {}; it must be [variables, observations]", shape_of(a));
  const Tensor x = widened(given.rank() < 2 ? given.reshape({1, -1}) : given);
  const Tensor centred = x - mean(x, 1, true);
  const Tensor divisor = maximum(number_of(x.shape()[1], x.dtype()) - correction, 0);
  const Tensor all = matmul(centred, centred.transpose()) / divisor;
  return rounded_to(given.rank() < 2 ? all.reshape({}) : all, given.dtype());
}

Tensor corrcoef(const Operand& a) {
  const Tensor given = as_float(a, "corrcoef");
  const Tensor c = cov(widened(given));
  if (c.rank() == 0)
    return rounded_to(c / c, given.dtype());
  const Tensor deviation = sqrt(diagonal(c));
  const Tensor scaled = c / (unsqueeze(deviation, 1) * unsqueeze(deviation, 0));
  return rounded_to(clamp(scaled, -1, 1), given.dtype());
}

MinMax aminmax(const Operand& a, const Axes& axes, bool keepdim) {
  return {min(a, axes, keepdim), max(a, axes, keepdim)};
}

} // namespace egret
