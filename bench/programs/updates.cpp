// Optimizers' updates of many tensors of many shapes.
#include "programs.h"

#include <algorithm>

namespace egret::programs {

namespace {

/// Shapes of the parameters of a small network, most of them vectors.
std::vector<Sizes> shapes(const Programs& p) {
  std::vector<Sizes> result;
  const std::int64_t d = p.size(96, 6);
  for (std::int64_t i = 0; i < p.size(25, 2); ++i)
    for (const Sizes& each :
         {Sizes{d, d}, Sizes{d}, Sizes{d}, Sizes{2 * d, d}, Sizes{2 * d}, Sizes{d, 3, 3}})
      result.push_back(each);
  return result;
}

/// `columns` tensors for each parameter: all first ones, all second ones ...
std::vector<Input> columns(const Programs& p, std::size_t count, DType dtype = DType::F32) {
  std::vector<Input> result;
  for (std::size_t i = 0; i < count; ++i)
    for (const Sizes& shape : shapes(p))
      result.push_back(data(shape, i == 0 ? DType::F32 : dtype));
  return result;
}

/// Column `i` of `count`.
Tensors column(const Tensors& t, std::size_t i, std::size_t count) {
  const std::size_t n = t.size() / count;
  return some(t, i * n, (i + 1) * n);
}

Tensor norm_of(const Tensors& tensors) {
  Tensor sum = scalar(0.0);
  for (const Tensor& each : tensors)
    sum = sum + each.square().sum();
  return sqrt(sum);
}

Tensors sgd_momentum(const Tensors& t) { // p, g, v
  const std::size_t n = t.size() / 3;
  Tensors weights, moments;
  for (std::size_t i = 0; i < n; ++i) {
    moments.push_back(t[2 * n + i] * 0.9 + t[n + i] + t[i] * 1e-4);
    weights.push_back(t[i] - moments.back() * 0.01);
  }
  weights.insert(weights.end(), moments.begin(), moments.end());
  return weights;
}

Tensors adam(const Tensors& t, const Tensor& factor) { // p, g, m, v (squared: made positive)
  const std::size_t n = t.size() / 4;
  Tensors weights, first, second;
  for (std::size_t i = 0; i < n; ++i) {
    const Tensor g = t[n + i].to(DType::F32) * factor;
    const Tensor m = t[2 * n + i] * 0.9 + g * 0.1;
    const Tensor v = abs(t[3 * n + i]) * 0.999 + g.square() * 0.001;
    weights.push_back(t[i] * (1 - 1e-5) - (m / 0.19) / (sqrt(v / 0.002) + 1e-8) * 1e-3);
    first.push_back(m);
    second.push_back(v);
  }
  weights.insert(weights.end(), first.begin(), first.end());
  weights.insert(weights.end(), second.begin(), second.end());
  return weights;
}

} // namespace

void add_updates(Programs& p) {
  p.add("update/sgd_momentum", columns(p, 3), sgd_momentum);
  p.add("update/adam", columns(p, 4), [](const Tensors& t) { return adam(t, scalar(1.0)); });
  p.add("update/adam_clipped", columns(p, 4), [](const Tensors& t) {
    return adam(t, minimum(1.0, 1.0 / (norm_of(column(t, 1, 4)) + 1e-6)));
  });
  p.add("update/clip_by_norm", columns(p, 1), [](const Tensors& t) {
    const Tensor norm = norm_of(t), factor = minimum(1.0, 1.0 / (norm + 1e-6));
    Tensors result = {norm};
    for (const Tensor& each : t)
      result.push_back(each * factor);
    return result;
  });
  p.add("update/clip_each", columns(p, 1), [](const Tensors& t) {
    Tensors result;
    for (const Tensor& each : t)
      result.push_back(each * minimum(1.0, 0.5 / (norm(each) + 1e-6)));
    return result;
  });
  p.add("update/average", columns(p, 2), [](const Tensors& t) {
    Tensors result;
    for (std::size_t i = 0; i < t.size() / 2; ++i)
      result.push_back(lerp(t[i], t[t.size() / 2 + i], 0.001));
    return result;
  });
  p.add("update/lion", columns(p, 3), [](const Tensors& t) {
    const std::size_t n = t.size() / 3;
    Tensors weights, moments;
    for (std::size_t i = 0; i < n; ++i) {
      weights.push_back(t[i] - sign(t[2 * n + i] * 0.9 + t[n + i] * 0.1) * 1e-4);
      moments.push_back(t[2 * n + i] * 0.99 + t[n + i] * 0.01);
    }
    weights.insert(weights.end(), moments.begin(), moments.end());
    return weights;
  });
  p.add("update/unscale_bf16", columns(p, 2, DType::BF16), [](const Tensors& t) {
    const std::size_t n = t.size() / 2; // p, g in bf16: nothing changes unless all are finite
    Tensor finite = scalar(true);
    for (std::size_t i = n; i < 2 * n; ++i)
      finite = finite & isfinite(t[i]).all();
    Tensors result = {finite};
    for (std::size_t i = 0; i < n; ++i)
      result.push_back(where(finite, t[i] - t[n + i].to(DType::F32) * (0.1 / 1024), t[i]));
    return result;
  });
  p.add("update/norm_ratios", columns(p, 2), [](const Tensors& t) { // LARS (You et al. 2017)
    const std::size_t n = t.size() / 2;
    Tensors result;
    for (std::size_t i = 0; i < n; ++i) {
      const Tensor ratio = norm(t[i]) / (norm(t[n + i]) + 1e-4 * norm(t[i]) + 1e-9);
      result.push_back(t[i] - t[n + i] * (ratio * 1e-3));
    }
    return result;
  });
}

} // namespace egret::programs
