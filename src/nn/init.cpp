#include "egret/nn/init.h"

#include "support/fail.h"

#include <cmath>
#include <numbers>

namespace egret::nn::init {

Fans fans_of(const Shape& shape) {
  if (shape.size() < 2)
    fail(ErrorKind::Shape, "init: a weight of {} has no inputs and outputs; it needs two axes",
         to_string(shape));
  double field = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (!shape[i].is_constant())
      fail(ErrorKind::Shape, "init: a weight of {} has no known size", to_string(shape));
    if (i >= 2)
      field *= static_cast<double>(shape[i].value());
  }
  return {static_cast<double>(shape[1].value()) * field,
          static_cast<double>(shape[0].value()) * field};
}

Tensor xavier_uniform(const Shape& shape, Generator& generator, double gain) {
  const Fans fans = fans_of(shape);
  const double bound = gain * std::sqrt(6 / (fans.in + fans.out));
  return uniform(shape, -bound, bound, generator);
}

Tensor xavier_normal(const Shape& shape, Generator& generator, double gain) {
  const Fans fans = fans_of(shape);
  return normal(shape, 0, gain * std::sqrt(2 / (fans.in + fans.out)), generator);
}

namespace {

double kaiming_deviation(const Shape& shape, const KaimingOptions& options) {
  const Fans fans = fans_of(shape);
  return std::sqrt(2 / ((1 + options.slope * options.slope) * (options.out ? fans.out : fans.in)));
}

} // namespace

Tensor kaiming_uniform(const Shape& shape, Generator& generator, const KaimingOptions& options) {
  const double bound = std::sqrt(3) * kaiming_deviation(shape, options);
  return uniform(shape, -bound, bound, generator);
}

Tensor kaiming_normal(const Shape& shape, Generator& generator, const KaimingOptions& options) {
  return normal(shape, 0, kaiming_deviation(shape, options), generator);
}

Tensor orthogonal(const Shape& shape, Generator& generator, double gain) {
  fans_of(shape); // two axes of known sizes
  const Tensor drawn = randn(shape, generator, DType::F64);
  const auto rows = static_cast<std::size_t>(drawn.size(0));
  const std::size_t columns = rows == 0 ? 0 : static_cast<std::size_t>(drawn.numel()) / rows;
  auto values = drawn.to_vector<double>();
  // The shorter vectors, by Gram and Schmidt: each is freed of those before it, twice, since once
  // leaves what rounding left.
  const bool tall = rows > columns;
  const std::size_t count = tall ? columns : rows, length = tall ? rows : columns;
  auto at = [&](std::size_t vector, std::size_t i) -> double& {
    return tall ? values[i * columns + vector] : values[vector * columns + i];
  };
  auto dot = [&](std::size_t a, std::size_t b) {
    double sum = 0;
    for (std::size_t i = 0; i < length; ++i)
      sum += at(a, i) * at(b, i);
    return sum;
  };
  for (std::size_t v = 0; v < count; ++v) {
    for (int again = 0; again < 2; ++again) {
      for (std::size_t before = 0; before < v; ++before) {
        const double part = dot(v, before);
        for (std::size_t i = 0; i < length; ++i)
          at(v, i) -= part * at(before, i);
      }
      const double size = std::sqrt(dot(v, v));
      for (std::size_t i = 0; i < length; ++i)
        at(v, i) /= size;
    }
  }
  for (double& value : values)
    value *= gain;
  return tensor(values, shape).to(DType::F32);
}

namespace {

double normal_below(double x) {
  return 0.5 * std::erfc(-x / std::numbers::sqrt2);
}

/// The x in [low, high] with normal_below(x) = part, by Newton's method kept within bounds.
double normal_quantile(double part, double low, double high) {
  double x = 0.5 * (low + high);
  for (int i = 0; i < 60; ++i) {
    const double error = normal_below(x) - part;
    (error > 0 ? high : low) = x;
    const double slope = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    double next = x - error / slope;
    if (!(next > low && next < high))
      next = 0.5 * (low + high);
    if (std::abs(next - x) < 1e-12 * (1 + std::abs(x)))
      return next;
    x = next;
  }
  return x;
}

} // namespace

Tensor truncated_normal(const Shape& shape, Generator& generator, double mean, double deviation,
                        double low, double high) {
  if (!(low < high) || !(deviation > 0) || !std::isfinite(low) || !std::isfinite(high))
    fail(ErrorKind::Value, "truncated_normal: deviation {}, from {} to {}", deviation, low, high);
  const double first = (low - mean) / deviation, last = (high - mean) / deviation;
  const double below = normal_below(first), above = normal_below(last);
  auto values = rand(shape, generator, DType::F64).to_vector<double>();
  for (double& value : values)
    value = mean + deviation * normal_quantile(below + value * (above - below), first, last);
  return tensor(values, shape).to(DType::F32);
}

} // namespace egret::nn::init
