// Workloads limited by arithmetic: products and what surrounds them.
#include "bench.h"

#include "egret/functional.h"

#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numeric>

namespace egret::tool::bench {

namespace {

Tensor matmul_ab(const std::vector<Tensor>& in) {
  return matmul(in[0], in[1]);
}
Tensor linear_relu(const std::vector<Tensor>& in) {
  return relu(matmul(in[0], in[1]) + in[2]);
}

Tensor attention(const std::vector<Tensor>& in) {
  Tensor scores =
      matmul(in[0], in[1].transpose()) / std::sqrt(static_cast<double>(in[0].size(-1))) + in[3];
  Tensor e = exp(scores - scores.max(-1, true));
  return matmul(e / e.sum(-1, true), in[2]);
}

/// Rows of the left factor and columns of what stands on the right.
Sample product_sample(const std::vector<Tensor>& inputs) {
  const std::int64_t columns = inputs[1].size(1);
  auto rows = sample_rows(inputs[0].size(0), 4);
  auto chosen = sample_rows(columns, 64);
  Sample s;
  s.inputs = {some_rows(inputs[0], rows), some_rows(inputs[1].transpose(), chosen).transpose()};
  if (inputs.size() > 2)
    s.inputs.push_back(some_rows(inputs[2], chosen));
  for (std::int64_t row : rows)
    for (std::int64_t column : chosen)
      s.elements.push_back(row * columns + column);
  return s;
}

Workload product(const std::string& name, const std::string& what, Function function,
                 std::int64_t m, std::int64_t k, std::int64_t n, DType dtype, bool bias) {
  auto make = [=] {
    std::vector<Tensor> inputs = {
        random_tensor({m, k}, 1, dtype),
        random_tensor({k, n}, 2, dtype, 1 / std::sqrt(static_cast<double>(k)))};
    if (bias)
      inputs.push_back(random_tensor({n}, 3, dtype));
    // Rounding of the result, and of k sums in f32.
    double tolerance = dtype == DType::BF16 ? 8e-3 : 1e-6 * std::sqrt(static_cast<double>(k));
    Case c = pure_case(
        name, function, inputs, [inputs] { return product_sample(inputs); }, tolerance);
    c.flops = 2.0 * static_cast<double>(m * n * k);
    c.bytes = static_cast<double>(size_of(dtype)) *
              static_cast<double>(m * k + k * n + m * n + (bias ? n : 0));
    return c;
  };
  return {name, what, name_of(dtype), dtype == DType::F32 ? Limit::PeakFma : Limit::None, make};
}

Case attention_case(const std::string& name, std::int64_t heads, std::int64_t positions,
                    std::int64_t width) {
  Tensor mask =
      where(causal_mask(positions, positions), 0.0, -std::numeric_limits<float>::infinity());
  mask.eval();
  std::vector<Tensor> inputs;
  for (std::uint64_t i = 1; i <= 3; ++i)
    inputs.push_back(random_tensor({1, heads, positions, width}, i));
  inputs.push_back(mask);
  auto sample = [=] {
    auto rows = sample_rows(positions, 8);
    Sample s;
    const std::int64_t head = heads - 1;
    auto of_head = [&](const Tensor& t) { return t.select(1, head).reshape({positions, width}); };
    auto as_input = [&](const Tensor& t) { return t.reshape({1, 1, t.size(0), width}); };
    s.inputs = {as_input(some_rows(of_head(inputs[0]), rows)), as_input(of_head(inputs[1])),
                as_input(of_head(inputs[2])), some_rows(mask, rows)};
    for (std::int64_t row : rows)
      for (std::int64_t i = 0; i < width; ++i)
        s.elements.push_back((head * positions + row) * width + i);
    return s;
  };
  Case c = pure_case(name, attention, inputs, sample, 1e-5);
  auto n = static_cast<double>(positions);
  c.flops = 2.0 * static_cast<double>(heads * width) * n * n; // the causal half of two products
  c.bytes = 16.0 * static_cast<double>(heads * width) * n;
  return c;
}

/// A vector times several matrices, each given with the output as rows.
Case gemv_case(const std::string& name, std::int64_t matrices, std::int64_t rows,
               std::int64_t columns) {
  std::vector<Tensor> inputs = {random_tensor({1, columns}, 1, DType::BF16)};
  for (std::int64_t i = 0; i < matrices; ++i)
    inputs.push_back(random_tensor({rows, columns}, static_cast<std::uint64_t>(2 + i), DType::BF16,
                                   1 / std::sqrt(static_cast<double>(columns))));
  Function function = [](const std::vector<Tensor>& in) {
    std::vector<Tensor> products;
    for (std::size_t i = 1; i < in.size(); ++i)
      products.push_back(matmul(in[0], in[i].transpose()));
    return cat(products, 0);
  };
  auto sample = [=] {
    auto chosen = sample_rows(rows, 16);
    Sample s;
    s.inputs = {inputs[0]};
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      s.inputs.push_back(some_rows(inputs[i], chosen));
      for (std::int64_t row : chosen)
        s.elements.push_back(static_cast<std::int64_t>(i - 1) * rows + row);
    }
    return s;
  };
  Case c = pure_case(name, function, inputs, sample, 8e-3);
  c.flops = 2.0 * static_cast<double>(matrices * rows * columns);
  c.bytes = 2.0 * static_cast<double>(matrices * rows * columns + columns + matrices * rows);
  return c;
}

} // namespace

std::vector<Workload> matmul_workloads() {
  std::vector<Workload> list;
  for (std::int64_t n : {256, 512, 1024, 2048})
    list.push_back(
        product(fmt::format("matmul_f32_{}", n), "A@B", matmul_ab, n, n, n, DType::F32, false));
  for (std::int64_t n : {512, 1024, 2048})
    list.push_back(product(fmt::format("matmul_bf16_{}", n), "A@B, sums in f32", matmul_ab, n, n, n,
                           DType::BF16, false));
  list.push_back(product("linear_relu_f32_256x784x512", "relu(a@w+b)", linear_relu, 256, 784, 512,
                         DType::F32, true));
  list.push_back(Workload{
      "attention_causal_f32_b1h8s1024d64",
      "softmax(q@k^T/sqrt(d)+mask)@v",
      "f32",
      Limit::PeakFma,
      [] { return attention_case("attention_causal_f32_b1h8s1024d64", 8, 1024, 64); },
  });
  list.push_back(Workload{"gemv_bf16_4096x4096_x8", "a vector times eight matrices", "bf16",
                          Limit::Read,
                          [] { return gemv_case("gemv_bf16_4096x4096_x8", 8, 4096, 4096); }});
  return list;
}

} // namespace egret::tool::bench
