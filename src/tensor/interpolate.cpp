// Interpolation: elements around each place, gathered and weighed, one axis after the other.
#include "support/fail.h"
#include "tensor/spatial.h"

#include <algorithm>
#include <cmath>

namespace egret {

using namespace detail;

namespace {

// One axis: n elements become `size`, each `step` elements from the one before.
struct Line {
  std::int64_t axis, n, size;
  double step;
  bool by_factor;
};

// Positions between the elements: the element below, i64, and the part of a step beyond it, in the
// type of the weights. Positions below 0 are 0 where they are `clamped`.
struct Places {
  Tensor low, fraction;
};

// Sizes give rational positions, whose whole part is found in integers, where no rounding is in the
// way; a factor's are rounded.
Places places(const Line& line, DType type, bool align_corners, bool clamped) {
  const Tensor i = iota(line.size, DType::I64);
  if (line.by_factor && !align_corners) {
    Tensor at = (i.to(type) + 0.5) * constant(type, line.step) - 0.5;
    if (clamped)
      at = maximum(at, 0);
    const Tensor low = floor(at);
    return {low.to(DType::I64), at - low};
  }
  Tensor over = align_corners ? i * (line.n - 1) : (i * 2 + 1) * line.n - line.size;
  const std::int64_t under =
      align_corners ? std::max<std::int64_t>(line.size - 1, 1) : 2 * line.size;
  if (clamped)
    over = maximum(over, 0);
  const Tensor low = floor_divide(over, under);
  return {low, (over - low * under).to(type) / static_cast<double>(under)};
}

Tensor along(const Tensor& weights, const Tensor& a, std::int64_t axis) {
  Shape shape(a.shape().size(), Expr(1));
  shape[static_cast<std::size_t>(axis)] = weights.shape()[0];
  return reshape(weights, shape);
}

// floor(i n / size), or of (2 i + 1) n / (2 size): in integers, where no rounding is in the way.
Tensor nearest(const Tensor& a, const Line& line, bool exact) {
  const Tensor i = iota(line.size, DType::I64);
  Tensor at;
  if (line.by_factor)
    at =
        floor((exact ? i.to(DType::F64) + 0.5 : i.to(DType::F64)) * constant(DType::F64, line.step))
            .to(DType::I64);
  else
    at = exact ? floor_divide((i * 2 + 1) * line.n, 2 * line.size)
               : floor_divide(i * line.n, line.size);
  return take(a, minimum(at, line.n - 1), line.axis);
}

Tensor linear_between(const Tensor& a, const Line& line, bool align_corners) {
  const auto [low, fraction] = places(line, a.dtype(), align_corners, true);
  const Tensor weight = along(fraction, a, line.axis);
  const Tensor x = take(a, minimum(low, line.n - 1), line.axis);
  const Tensor y = take(a, minimum(low + 1, line.n - 1), line.axis);
  return x * (1 - weight) + y * weight;
}

Tensor cubic_between(const Tensor& a, const Line& line, bool align_corners) {
  constexpr double s = -0.75;
  const auto [low, t] = places(line, a.dtype(), align_corners, false);
  const Tensor u = 1 - t;
  auto inner = [](const Tensor& d) { return ((d * (s + 2)) - (s + 3)) * d * d + 1; };
  auto outer = [](const Tensor& d) { return ((d * s - 5 * s) * d + 8 * s) * d - 4 * s; };
  const Tensor weights[] = {outer(t + 1), inner(t), inner(u), outer(u + 1)};
  Tensor sum;
  for (int k = 0; k < 4; ++k) {
    const Tensor index = minimum(maximum(low + (k - 1), 0), line.n - 1);
    const Tensor term = take(a, index, line.axis) * along(weights[k], a, line.axis);
    sum = k == 0 ? term : sum + term;
  }
  return sum;
}

// The kernels reach over `wide` elements instead of one where the axis becomes smaller, and weights
// that reach beyond the edge are shared by the others. Elements without a weight are not met: they
// may be NaN.
Tensor averaged(const Tensor& a, const Line& line, bool cubic) {
  const double wide = std::max(line.step, 1.0), radius = (cubic ? 2 : 1) * wide;
  const auto taps =
      static_cast<std::int64_t>(std::min(std::ceil(2 * radius) + 1, static_cast<double>(line.n)));
  const Tensor centre = unsqueeze((iota(line.size, DType::F64) + 0.5) * line.step, 1);
  const Tensor first =
      minimum(maximum(floor(centre - radius + 0.5).to(DType::I64), 0), line.n - taps);
  const Tensor index = first + iota(taps, DType::I64);
  const Tensor x = abs((index.to(DType::F64) + 0.5 - centre) / wide);
  Tensor weight = relu(1 - x);
  if (cubic) {
    constexpr double s = -0.5;
    const Tensor inner = (x * (s + 2) - (s + 3)) * x * x + 1;
    const Tensor outer = ((x * s - 5 * s) * x + 8 * s) * x - 4 * s;
    weight = where(x < 1, inner, where(x < 2, outer, 0));
  }
  weight = (weight / sum(weight, 1, true)).to(a.dtype());
  const Tensor met = take(movedim(a, line.axis, -1), index, -1);
  return movedim(sum(where(weight == 0, 0, met * weight), -1), -1, line.axis);
}

Tensor resized(const Tensor& a, const std::vector<Line>& lines, const InterpolateOptions& options,
               const char* who) {
  const bool near =
      options.mode == Interpolation::Nearest || options.mode == Interpolation::NearestExact;
  if (near && options.align_corners)
    fail(ErrorKind::Value, "{}: corners align where elements are mixed, linear or cubic", who);
  if (options.antialias && (near || options.align_corners))
    fail(ErrorKind::Value,
         "{}: antialias goes with linear and cubic interpolation without align_corners", who);
  if (!near)
    require_float(a, who);
  Tensor x = near ? a : widened(a);
  for (const Line& line : lines) {
    if (line.n < 1 || line.size < 1)
      fail(ErrorKind::Shape, "{}: {} elements of axis {} of {} to {}; both must be positive", who,
           line.n, line.axis, shape_of(a), line.size);
    if (near)
      x = nearest(x, line, options.mode == Interpolation::NearestExact);
    else if (options.antialias)
      x = averaged(x, line, options.mode == Interpolation::Cubic);
    else if (options.mode == Interpolation::Linear)
      x = linear_between(x, line, options.align_corners);
    else
      x = cubic_between(x, line, options.align_corners);
  }
  return x.to(a.dtype());
}

std::int64_t spatial_axes(const Tensor& a, const char* who) {
  Access::held(a, who);
  if (a.rank() < 3 || a.rank() > 5)
    fail(ErrorKind::Shape,
         "{}: got {}; it must be [batch, channels, spatial...] with one to three "
         "spatial axes",
         who, shape_of(a));
  return a.rank() - 2;
}

} // namespace

Tensor interpolate(const Operand& a, const PerAxis& sizes, const InterpolateOptions& options) {
  const std::int64_t spatial = spatial_axes(a, "interpolate");
  const auto wanted = per_axis(sizes, static_cast<std::size_t>(spatial), 1, "size", "interpolate");
  std::vector<Line> lines;
  for (std::int64_t i = 0; i < spatial; ++i) {
    const std::int64_t n = a.size(i + 2), size = wanted[static_cast<std::size_t>(i)];
    lines.push_back({i + 2, n, size, static_cast<double>(n) / static_cast<double>(size), false});
  }
  return resized(a, lines, options, "interpolate");
}

Tensor interpolate_by(const Operand& a, const std::vector<double>& factors,
                      const InterpolateOptions& options) {
  const std::int64_t spatial = spatial_axes(a, "interpolate_by");
  if (factors.size() != 1 && factors.size() != static_cast<std::size_t>(spatial))
    fail(ErrorKind::Value, "interpolate_by: {} factors; one, or one for each of {} axes, is needed",
         factors.size(), spatial);
  std::vector<Line> lines;
  for (std::int64_t i = 0; i < spatial; ++i) {
    const double factor = factors[factors.size() == 1 ? 0 : static_cast<std::size_t>(i)];
    if (!(factor > 0) || !std::isfinite(factor))
      fail(ErrorKind::Value, "interpolate_by: a factor of {}; it must be positive", factor);
    const std::int64_t n = a.size(i + 2);
    const double size = std::floor(static_cast<double>(n) * factor);
    constexpr double kMost = 1 << 29; // as of sizes that are given
    if (size > kMost)
      fail(ErrorKind::Value, "interpolate_by: a factor of {} makes {} elements of {}; at most {}",
           factor, size, n, kMost);
    lines.push_back({i + 2, n, static_cast<std::int64_t>(size), 1 / factor, true});
  }
  return resized(a, lines, options, "interpolate_by");
}

} // namespace egret
