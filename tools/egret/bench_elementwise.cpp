// Workloads limited by memory: element by element, and rows.
#include "bench.h"

#include "egret/functional.h"

#include <cmath>
#include <numbers>
#include <numeric>

namespace egret::tool::bench {

namespace {

constexpr double kF32Tolerance = 1e-5;

Tensor tanh_affine(const std::vector<Tensor>& in) {
  return tanh(in[0] * 2.0 + 1.0);
}

Tensor gelu_tanh(const std::vector<Tensor>& in) {
  const Tensor& x = in[0];
  return 0.5 * x * (1.0 + tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

Tensor softmax_rows(const std::vector<Tensor>& in) {
  Tensor e = exp(in[0] - in[0].max(-1, true));
  return e / e.sum(-1, true);
}

Tensor layernorm_rows(const std::vector<Tensor>& in) {
  const Tensor& x = in[0];
  Tensor centred = x - x.mean(-1, true);
  return centred * rsqrt((centred * centred).mean(-1, true) + 1e-5) * in[1] + in[2];
}

/// A function of the rows of its first input; the others are the same for all rows.
Case rows_case(const std::string& name, Function function, std::vector<std::int64_t> shape,
               int vectors) {
  std::vector<Tensor> inputs = {random_tensor(shape, 1)};
  for (int i = 0; i < vectors; ++i)
    inputs.push_back(random_tensor({shape.back()}, static_cast<std::uint64_t>(2 + i)));
  auto sample = [inputs, shape] {
    auto rows = sample_rows(shape[0], 8);
    Sample s{inputs, {}};
    s.inputs[0] = some_rows(inputs[0], rows);
    for (std::int64_t row : rows)
      for (std::int64_t i = 0; i < shape[1]; ++i)
        s.elements.push_back(row * shape[1] + i);
    return s;
  };
  Case c = pure_case(name, function, inputs, sample, kF32Tolerance);
  auto elements = static_cast<double>(shape[0] * shape[1]);
  c.bytes = 8 * elements + 4.0 * vectors * static_cast<double>(shape[1]);
  return c;
}

Workload rows(const std::string& name, const std::string& what, Function function,
              std::vector<std::int64_t> shape, int vectors, double flops_an_element) {
  return {name, what, "f32", Limit::Copy, [=] {
            Case c = rows_case(name, function, shape, vectors);
            c.flops = flops_an_element * static_cast<double>(shape[0] * shape[1]);
            return c;
          }};
}

} // namespace

std::vector<Workload> elementwise_workloads() {
  return {
      rows("tanh_affine_f32_16m", "tanh(x*2+1) of 2^24 floats", tanh_affine, {4096, 4096}, 0, 3),
      rows("gelu_f32_4096x1024", "gelu in its tanh form", gelu_tanh, {4096, 1024}, 0, 9),
      rows("softmax_f32_4096x4096", "softmax of the last axis, from max, exp and sum", softmax_rows,
           {4096, 4096}, 0, 5),
      rows("layernorm_f32_4096x1024", "layer norm of the last axis, from mean and rsqrt",
           layernorm_rows, {4096, 1024}, 2, 8),
  };
}

} // namespace egret::tool::bench
