#include "models/vision/resize.h"

#include "egret/functional.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace egret::models::vision {

namespace {

double triangle(double x) {
  return std::max(1 - std::abs(x), 0.0);
}
double keys_cubic(double x) { // Keys 1981
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1)
    return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/// What each of `to` results is made of: f32 [to, from], rows that sum to 1.
Tensor weights(std::int64_t from, std::int64_t to, Interpolation kind) {
  const double step = static_cast<double>(from) / static_cast<double>(to);
  const double wide = std::max(step, 1.0), reach = (kind == Interpolation::Cubic ? 2 : 1) * wide;
  std::vector<float> values(static_cast<std::size_t>(from * to));
  for (std::int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * step;
    const auto begin = std::max<std::int64_t>(static_cast<std::int64_t>(centre - reach + 0.5), 0);
    const auto end = std::min(static_cast<std::int64_t>(centre + reach + 0.5), from);
    std::vector<double> row;
    double sum = 0;
    for (std::int64_t k = begin; k < end; ++k) {
      const double x = (static_cast<double>(k) - centre + 0.5) / wide;
      row.push_back(kind == Interpolation::Cubic ? keys_cubic(x) : triangle(x));
      sum += row.back();
    }
    for (std::int64_t k = begin; k < end; ++k)
      values[static_cast<std::size_t>(i * from + k)] =
          static_cast<float>(row[static_cast<std::size_t>(k - begin)] / sum);
  }
  return tensor(values).reshape({to, from});
}

Tensor as_bytes(const Tensor& values) {
  return clamp(floor(values + 0.5), 0, 255);
}

} // namespace

Tensor resized(const Tensor& pixels, std::int64_t height, std::int64_t width, Interpolation kind) {
  const std::int64_t rows = pixels.size(0), columns = pixels.size(1);
  Tensor x = pixels.to(DType::F32).permute({2, 0, 1});
  if (columns != width)
    x = as_bytes(matmul(x, weights(columns, width, kind).transpose()));
  if (rows != height)
    x = as_bytes(matmul(weights(rows, height, kind), x));
  return x.permute({1, 2, 0}).to(DType::U8);
}

} // namespace egret::models::vision
