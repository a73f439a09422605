// Workloads limited by arithmetic: products and what surrounds them.
#include "bench.h"

#include "egret/functional.h"

#include <array>
#include <cmath>
#include <fmt/format.h>

namespace egret::tool::bench {

namespace {

Tensor matmul_ab(const std::vector<Tensor>& in) {
  return matmul(in[0], in[1]);
}
Tensor matmul_abt(const std::vector<Tensor>& in) {
  return matmul(in[0], in[1].transpose());
}
Tensor linear_relu(const std::vector<Tensor>& in) {
  return relu(matmul(in[0], in[1]) + in[2]);
}
Tensor linear_gelu(const std::vector<Tensor>& in) {
  return gelu(matmul(in[0], in[1]) + in[2], Gelu::Tanh);
}

/// (silu(x gate) * (x up)) down
Tensor swiglu_mlp(const std::vector<Tensor>& in) {
  Tensor g = matmul(in[0], in[1]);
  return matmul(g * sigmoid(g) * matmul(in[0], in[2]), in[3]);
}

double tolerance_of(DType dtype, std::int64_t k) {
  // Rounding of the result, and of k sums in f32.
  return dtype == DType::BF16 ? 8e-3 : 1e-6 * std::sqrt(static_cast<double>(k));
}

/// act(a b), or act(a b + bias), for matrices [m,k] and [k,n] (turned: [n,k]).
struct Linear {
  std::string what;
  Function function;
  bool turned = false, bias = false;
};

const Linear kProduct{"A@B", matmul_ab};
const Linear kTurned{"A@B^T", matmul_abt, true};
const Linear kRelu{"relu(a@w+b)", linear_relu, false, true};
const Linear kGelu{"gelu(a@w+b) in its tanh form", linear_gelu, false, true};

/// Rows of the left factor and columns of what stands on the right.
Sample product_sample(const Linear& kind, const std::vector<Tensor>& inputs) {
  const std::int64_t columns = inputs[1].size(kind.turned ? 0 : 1);
  auto rows = sample_rows(inputs[0].size(0), 4);
  auto chosen = sample_rows(columns, 64);
  Sample s;
  s.inputs = {some_rows(inputs[0], rows),
              kind.turned ? some_rows(inputs[1], chosen)
                          : some_rows(inputs[1].transpose(), chosen).transpose()};
  if (kind.bias)
    s.inputs.push_back(some_rows(inputs[2], chosen));
  for (std::int64_t row : rows)
    for (std::int64_t column : chosen)
      s.elements.push_back(row * columns + column);
  return s;
}

std::vector<Tensor> inputs_of(const Linear& kind, const Product& p, std::uint64_t set) {
  std::vector<Tensor> all = {
      random_tensor({p.m, p.k}, 16 * set + 1, p.dtype),
      random_tensor(kind.turned ? std::vector{p.n, p.k} : std::vector{p.k, p.n}, 16 * set + 2,
                    p.dtype, 1 / std::sqrt(static_cast<double>(p.k)))};
  if (kind.bias)
    all.push_back(random_tensor({p.n}, 16 * set + 3, p.dtype));
  return all;
}

Workload product(const std::string& name, const Linear& kind, const Product& p, Limit limit,
                 Judged judged = Judged::Cpu) {
  const double bytes =
      static_cast<double>(size_of(p.dtype)) *
      static_cast<double>(p.m * p.k + p.k * p.n + p.m * p.n + (kind.bias ? p.n : 0));
  auto make = [=] {
    Case c = pure_case(
        name, kind.function, [=](std::uint64_t set) { return inputs_of(kind, p, set); },
        [=](const std::vector<Tensor>& in) { return product_sample(kind, in); },
        tolerance_of(p.dtype, p.k));
    c.flops = 2.0 * static_cast<double>(p.m * p.n * p.k);
    c.bytes = bytes;
    c.product = p;
    c.product->turned = kind.turned;
    return c;
  };
  Workload w{name, kind.what, name_of(p.dtype), limit, make};
  w.judged = judged;
  w.memory = 1.5 * bytes;
  const Product few{std::min<std::int64_t>(p.m, 40), 72, 136, p.dtype};
  w.small = [=] { return traced(kind.function, inputs_of(kind, few, 0)); };
  return w;
}

std::vector<Tensor> mlp_inputs(std::int64_t tokens, std::int64_t width, std::int64_t hidden,
                               std::uint64_t set) {
  auto matrix = [&](std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
    return random_tensor({rows, columns}, 16 * set + seed, DType::BF16,
                         1 / std::sqrt(static_cast<double>(rows)));
  };
  return {random_tensor({tokens, width}, 16 * set + 1, DType::BF16), matrix(width, hidden, 2),
          matrix(width, hidden, 3), matrix(hidden, width, 4)};
}

Case mlp_case(const std::string& name, std::int64_t tokens, std::int64_t width,
              std::int64_t hidden) {
  auto make = [=](std::uint64_t set) { return mlp_inputs(tokens, width, hidden, set); };
  auto sample = [=](const std::vector<Tensor>& in) {
    auto rows = sample_rows(tokens, 2);
    auto columns = sample_rows(width, 16);
    Sample s{in, {}};
    s.inputs[0] = some_rows(in[0], rows);
    s.inputs[3] = some_rows(in[3].transpose(), columns).transpose();
    for (std::int64_t row : rows)
      for (std::int64_t column : columns)
        s.elements.push_back(row * width + column);
    return s;
  };
  Case c = pure_case(name, swiglu_mlp, make, sample, 1.6e-2); // two products, one after the other
  c.flops = 6.0 * static_cast<double>(tokens * width * hidden);
  c.bytes = 2.0 * static_cast<double>(2 * tokens * width + 3 * width * hidden);
  return c;
}

/// relu(x w'), once for each weight.
Tensor layers_of(const Tensor& x, const std::vector<Tensor>& weights) {
  Tensor now = x;
  for (const Tensor& weight : weights)
    now = relu(matmul(now, weight.transpose()));
  return now;
}

/// Layers of a model whose weights the function has captured, and a few rows.
struct Layers {
  std::int64_t rows, width, count;
  DType dtype;

  std::vector<Tensor> weights() const {
    std::vector<Tensor> all;
    for (std::int64_t i = 0; i < count; ++i)
      all.push_back(random_tensor({width, width}, static_cast<std::uint64_t>(100 + i), dtype,
                                  1.4 / std::sqrt(static_cast<double>(width))));
    return all;
  }
  std::vector<Tensor> input(std::uint64_t set) const {
    return {random_tensor({rows, width}, 16 * set + 1, dtype)};
  }
};

Workload layers_workload(const Layers& l) {
  const std::string name =
      fmt::format("layers_{}_{}x{}_x{}", name_of(l.dtype), l.rows, l.width, l.count);
  const double elements = static_cast<double>(l.width * l.width * l.count);
  Workload w{name, "relu(x@w^T) with captured weights, layer after layer", name_of(l.dtype),
             Limit::Read, [=] {
               auto sample = [=](const std::vector<Tensor>& in) {
                 const auto rows = sample_rows(l.rows, 1);
                 Sample s{{some_rows(in[0], rows)}, {}};
                 for (const std::int64_t row : rows)
                   for (std::int64_t column = 0; column < l.width; ++column)
                     s.elements.push_back(row * l.width + column);
                 return s;
               };
               Case c = pure_case(
                   name,
                   [weights = l.weights()](const std::vector<Tensor>& in) {
                     return layers_of(in[0], weights);
                   },
                   [=](std::uint64_t set) { return l.input(set); }, sample,
                   static_cast<double>(l.count) * tolerance_of(l.dtype, l.width));
               c.flops = 2.0 * elements * static_cast<double>(l.rows);
               c.bytes = elements * static_cast<double>(size_of(l.dtype));
               return c;
             }};
  w.small = [dtype = l.dtype] {
    const Layers few{5, 40, 2, dtype};
    return traced([weights = few.weights()](const Tensor& x) { return layers_of(x, weights); },
                  few.input(0)[0]);
  };
  return w;
}

/// A vector times several matrices, each given with the output as rows.
Case gemv_case(const std::string& name, std::int64_t matrices, std::int64_t rows,
               std::int64_t columns) {
  auto make = [=](std::uint64_t set) {
    std::vector<Tensor> inputs = {random_tensor({1, columns}, 16 * set + 1, DType::BF16)};
    for (std::int64_t i = 0; i < matrices; ++i)
      inputs.push_back(random_tensor({rows, columns}, 16 * set + static_cast<std::uint64_t>(2 + i),
                                     DType::BF16, 1 / std::sqrt(static_cast<double>(columns))));
    return inputs;
  };
  Function function = [](const std::vector<Tensor>& in) {
    std::vector<Tensor> products;
    for (std::size_t i = 1; i < in.size(); ++i)
      products.push_back(matmul(in[0], in[i].transpose()));
    return cat(products, 0);
  };
  auto sample = [=](const std::vector<Tensor>& inputs) {
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
  Case c = pure_case(name, function, make, sample, 8e-3);
  c.flops = 2.0 * static_cast<double>(matrices * rows * columns);
  c.bytes = 2.0 * static_cast<double>(matrices * rows * columns + columns + matrices * rows);
  return c;
}

} // namespace

std::vector<Workload> matmul_workloads() {
  std::vector<Workload> list;
  auto square = [&](const Linear& kind, std::int64_t n, DType dtype, Judged judged) {
    list.push_back(
        product(fmt::format("matmul_{}_{}{}", name_of(dtype), n, kind.turned ? "_nt" : ""), kind,
                {n, n, n, dtype}, dtype == DType::F32 ? Limit::PeakFma : Limit::None, judged));
  };
  for (std::int64_t n : {256, 512, 1024, 2048})
    square(kProduct, n, DType::F32, n == 1024 ? Judged::Both : Judged::Cpu);
  square(kProduct, 4096, DType::F32, Judged::Cuda);
  for (std::int64_t n : {512, 1024, 2048})
    square(kProduct, n, DType::BF16, n == 512 ? Judged::Cpu : Judged::Both);
  for (std::int64_t n : {4096, 8192})
    square(kProduct, n, DType::BF16, Judged::Cuda);
  for (std::int64_t n : {1024, 2048, 4096, 8192})
    square(kTurned, n, DType::BF16, Judged::Cuda);
  list.push_back(
      product("linear_relu_f32_256x784x512", kRelu, {256, 512, 784, DType::F32}, Limit::PeakFma));
  list.push_back(product("linear_relu_bf16_4096x4096x4096", kRelu, {4096, 4096, 4096, DType::BF16},
                         Limit::None, Judged::Cuda));
  list.push_back(product("linear_gelu_bf16_8192x4096x14336", kGelu,
                         {8192, 14336, 4096, DType::BF16}, Limit::None, Judged::Cuda));
  Workload mlp{"swiglu_mlp_bf16_4096",
               "(silu(x@gate)*(x@up))@down, 4096 tokens of width 4096, hidden 14336",
               "bf16",
               Limit::None,
               [] { return mlp_case("swiglu_mlp_bf16_4096", 4096, 4096, 14336); },
               0,
               Judged::Cuda,
               1.2e9};
  mlp.small = [] { return traced(swiglu_mlp, mlp_inputs(24, 32, 56, 0)); };
  list.push_back(mlp);
  list.push_back(Workload{"gemv_bf16_4096x4096_x8", "a vector times eight matrices", "bf16",
                          Limit::Read,
                          [] { return gemv_case("gemv_bf16_4096x4096_x8", 8, 4096, 4096); }});
  struct Skinny {
    std::int64_t m, k, n;
  };
  for (const Skinny& s : {Skinny{1, 4096, 14336},
                          {1, 14336, 4096},
                          {1, 4096, 128256},
                          {16, 4096, 14336},
                          {64, 4096, 14336}})
    list.push_back(product(fmt::format("gemv_bf16_{}x{}x{}", s.m, s.k, s.n), kTurned,
                           {s.m, s.n, s.k, DType::BF16}, Limit::Read, Judged::Cuda));
  for (const DType dtype : {DType::F32, DType::BF16})
    for (const auto& [rows, width, count] :
         {std::array<std::int64_t, 3>{4, 1024, 3}, {16, 1024, 3}, {8, 2048, 2}, {64, 1024, 3}})
      list.push_back(layers_workload({rows, width, count, dtype}));
  return list;
}

} // namespace egret::tool::bench
