// Differences, integrals, histograms and covariances.
#include "egret/functional/indices.h"
#include "egret/functional/order.h"

#include "support/fail.h"
#include "tensor/ops.h"

#include <cmath>
#include <vector>

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
  const Expr& size = a.shape()[static_cast<std::size_t>(axis)];
  if (size.is_constant() && size.value() <= times)
    return a.narrow(axis, 0, 0);
  constexpr std::int64_t kMost = 1024; // each is recorded
  if (times > kMost)
    fail(ErrorKind::Value, "diff: {} times; the number must be at most {}", times, kMost);
  Tensor result = a.clone();
  for (std::int64_t i = 0; i < times; ++i) {
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

namespace {

// Along an axis that is the last one. `x` empty: neighbours are `step` apart.
Tensor derivative(const Tensor& a, double step, const Tensor& x, int edge_order) {
  const std::int64_t n = a.size(-1);
  const auto at = [&](std::int64_t i, std::int64_t length) { return a.narrow(-1, i, length); };
  // Distances before and behind the elements from `begin` on.
  const auto distance = [&](std::int64_t begin, std::int64_t length) {
    return x.defined() ? x.narrow(0, begin + 1, length) - x.narrow(0, begin, length)
                       : expand(constant(a.dtype(), step), {length});
  };
  Tensor first = (at(1, 1) - at(0, 1)) / distance(0, 1);
  Tensor last = (at(n - 1, 1) - at(n - 2, 1)) / distance(n - 2, 1);
  if (edge_order == 2) {
    const auto end = [&](std::int64_t i, const Tensor& near, const Tensor& far, double side) {
      const std::int64_t inner = i == 0 ? 1 : n - 2, other = i == 0 ? 2 : n - 3;
      const Tensor both = near + far;
      return (at(inner, 1) * (both / (near * far)) - at(i, 1) * ((near + both) / (near * both)) -
              at(other, 1) * (near / (far * both))) *
             side;
    };
    first = end(0, distance(0, 1), distance(1, 1), 1);
    last = end(n - 1, distance(n - 2, 1), distance(n - 3, 1), -1);
  }
  if (n == 2)
    return cat({first, last}, -1);
  const Tensor low = distance(0, n - 2), high = distance(1, n - 2), both = low + high;
  const Tensor inner = x.defined() ? at(1, n - 2) * ((high - low) / (low * high)) -
                                         at(0, n - 2) * (high / (low * both)) +
                                         at(2, n - 2) * (low / (high * both))
                                   : (at(2, n - 2) - at(0, n - 2)) / both;
  return cat({first, inner, last}, -1);
}

} // namespace

std::vector<Tensor> gradient(const Operand& a, const GradientOptions& options) {
  constexpr const char* who = "gradient";
  const Tensor x = as_float(a, who);
  const auto list = axes_of(options.axes, x.shape(), who);
  if (options.edge_order != 1 && options.edge_order != 2)
    fail(ErrorKind::Value, "{}: an edge order of {}; it is 1 or 2", who, options.edge_order);
  const bool placed = !options.coordinates.empty();
  const std::size_t given = placed ? options.coordinates.size() : options.spacing.size();
  if (given != list.size() && (placed || given != 1))
    fail(ErrorKind::Value, "{}: {} {} for {} axes; {}one for each is needed", who, given,
         placed ? "coordinates" : "spacings", list.size(), placed ? "" : "one for all or ");
  // Axes are ascending; what was given follows the user's order.
  std::vector<std::int64_t> named_axes = options.axes.list();
  for (std::int64_t& axis : named_axes)
    axis = axis_of(axis, x.rank(), x.shape(), who);
  if (options.axes.all())
    named_axes = list;
  std::vector<Tensor> result;
  for (std::size_t i = 0; i < named_axes.size(); ++i) {
    const std::int64_t axis = named_axes[i];
    if (x.size(axis) < options.edge_order + 1)
      fail(ErrorKind::Shape, "{}: axis {} of {} is too short; at least {} elements are needed", who,
           axis, shape_of(a), options.edge_order + 1);
    const double step = placed ? 1 : options.spacing[given == 1 ? 0 : i];
    if (step == 0 || !std::isfinite(step))
      fail(ErrorKind::Value, "{}: a spacing of {}; it must be a finite number, and not 0", who,
           step);
    const Tensor line = movedim(widened(x), axis, -1);
    Tensor places;
    if (placed) {
      const Tensor& own = options.coordinates[i];
      Access::held(own, who);
      if (own.shape() != Shape{x.shape()[static_cast<std::size_t>(axis)]})
        fail(ErrorKind::Shape, "{}: coordinates {} do not fit axis {} of {}", who, shape_of(own),
             axis, shape_of(a));
      places = own.to(line.dtype());
    }
    const Tensor y = derivative(line, step, places, options.edge_order);
    result.push_back(rounded_to(movedim(y, -1, axis), x.dtype()));
  }
  return result;
}

Tensor histogram(const Operand& a, const Operand& edges, const Operand& weights, bool density) {
  constexpr const char* who = "histogram";
  Access::held(a, who);
  Access::held(edges, who);
  if (edges.rank() != 1 || edges.size(0) < 2)
    fail(ErrorKind::Shape, "{}: edges {}; a vector of at least two is needed", who,
         shape_of(edges));
  if (weights.defined() && weights.shape() != a.shape())
    fail(ErrorKind::Shape, "{}: weights {} do not fit {}; shapes must be equal", who,
         shape_of(weights), shape_of(a));
  const DType type = a.dtype() == DType::F64 ? DType::F64 : DType::F32;
  const std::int64_t bins = edges.size(0) - 1;
  const Tensor x = a.detach().to(type).flatten(), line = edges.detach().to(type);
  const Tensor last = line.narrow(0, bins, 1);
  const Tensor above = searchsorted(line, x, true) - 1;
  const Tensor bin =
      where(x == last, bins - 1, where((x >= line.narrow(0, 0, 1)) & (x < last), above, -1));
  const Tensor counted =
      weights.defined() ? weights.detach().to(type).flatten() : ones(x.shape(), type);
  const Tensor sums = bincount(bin, bins, counted);
  if (!density)
    return sums;
  return sums / (sum(sums) * (line.narrow(0, 1, bins) - line.narrow(0, 0, bins)));
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
