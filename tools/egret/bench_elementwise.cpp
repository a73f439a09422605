// Workloads limited by memory: element by element, and rows.
#include "bench.h"

#include "egret/functional.h"

#include <cmath>
#include <fmt/format.h>
#include <numbers>

namespace egret::tool::bench {

namespace {

Tensor tanh_affine(const std::vector<Tensor>& in) {
  return tanh(in[0] * 2.0 + 1.0);
}

Tensor exp_cos(const std::vector<Tensor>& in) {
  return exp(cos(in[0]));
}

Tensor gelu_tanh(const std::vector<Tensor>& in) {
  const Tensor& x = in[0];
  return 0.5 * x * (1.0 + tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

/// silu(a) * b
Tensor swiglu(const std::vector<Tensor>& in) {
  const Tensor a = in[0].to(DType::F32);
  return (a * sigmoid(a) * in[1].to(DType::F32)).to(in[0].dtype());
}

// Rows of bf16 are computed in f32 and rounded once.

Tensor softmax_rows(const std::vector<Tensor>& in) {
  const Tensor x = in[0].to(DType::F32);
  Tensor e = exp(x - x.max(-1, true));
  return (e / e.sum(-1, true)).to(in[0].dtype());
}

Tensor rmsnorm_rows(const std::vector<Tensor>& in) {
  const Tensor x = in[0].to(DType::F32);
  return (x * rsqrt((x * x).mean(-1, true) + 1e-5) * in[1].to(DType::F32)).to(in[0].dtype());
}

Tensor layernorm_rows(const std::vector<Tensor>& in) {
  const Tensor x = in[0].to(DType::F32);
  Tensor centred = x - x.mean(-1, true);
  Tensor y = centred * rsqrt((centred * centred).mean(-1, true) + 1e-5) * in[1].to(DType::F32) +
             in[2].to(DType::F32);
  return y.to(in[0].dtype());
}

/// A function of rows, and of vectors that are the same for all rows.
struct Rows {
  std::string what;
  Function function;
  int matrices = 1, vectors = 0;
  double flops = 0; ///< an element
};

const Rows kTanhAffine{"tanh(x*2+1)", tanh_affine, 1, 0, 3};
const Rows kExpCos{"exp(cos(x))", exp_cos, 1, 0, 2};
const Rows kGeluRows{"gelu in its tanh form", gelu_tanh, 1, 0, 9};
const Rows kSwiglu{"silu(a)*b", swiglu, 2, 0, 5};
const Rows kSoftmax{"softmax of the last axis, from max, exp and sum", softmax_rows, 1, 0, 5};
const Rows kRmsNorm{"RMS norm of the last axis, from mean and rsqrt", rmsnorm_rows, 1, 1, 5};
const Rows kLayerNorm{"layer norm of the last axis, from mean and rsqrt", layernorm_rows, 1, 2, 8};

std::vector<Tensor> inputs_of(const Rows& kind, const std::vector<std::int64_t>& shape, DType dtype,
                              std::uint64_t set) {
  std::vector<Tensor> inputs;
  for (int i = 0; i < kind.matrices + kind.vectors; ++i)
    inputs.push_back(
        random_tensor(i < kind.matrices ? shape : std::vector<std::int64_t>{shape.back()},
                      16 * set + 1 + static_cast<std::uint64_t>(i), dtype));
  return inputs;
}

Case rows_case(const std::string& name, const Rows& kind, const std::vector<std::int64_t>& shape,
               DType dtype) {
  auto make = [=](std::uint64_t set) { return inputs_of(kind, shape, dtype, set); };
  auto sample = [=](const std::vector<Tensor>& inputs) {
    auto rows = sample_rows(shape[0], 8);
    Sample s{inputs, {}};
    for (int i = 0; i < kind.matrices; ++i)
      s.inputs[static_cast<std::size_t>(i)] = some_rows(inputs[static_cast<std::size_t>(i)], rows);
    for (std::int64_t row : rows)
      for (std::int64_t i = 0; i < shape[1]; ++i)
        s.elements.push_back(row * shape[1] + i);
    return s;
  };
  Case c = pure_case(name, kind.function, make, sample, dtype == DType::F32 ? 1e-5 : 8e-3);
  const auto elements = static_cast<double>(shape[0] * shape[1]);
  c.flops = kind.flops * elements;
  c.bytes = static_cast<double>(size_of(dtype)) *
            ((kind.matrices + 1) * elements + kind.vectors * static_cast<double>(shape[1]));
  return c;
}

Workload rows(const std::string& name, const Rows& kind, const std::vector<std::int64_t>& shape,
              DType dtype = DType::F32, Judged judged = Judged::Cpu) {
  Workload w{name, kind.what, name_of(dtype), Limit::Copy,
             [=] { return rows_case(name, kind, shape, dtype); }};
  w.judged = judged;
  // Once more for the results that are poisoned beside them.
  w.memory = static_cast<double>(size_of(dtype)) * (kind.matrices + 2) *
             static_cast<double>(shape[0] * shape[1]);
  w.small = [=] { return traced(kind.function, inputs_of(kind, {5, 264}, dtype, 0)); };
  return w;
}

} // namespace

std::vector<Workload> elementwise_workloads() {
  std::vector<Workload> list = {
      rows("tanh_affine_f32_16m", kTanhAffine, {4096, 4096}),
      rows("gelu_f32_4096x1024", kGeluRows, {4096, 1024}),
      rows("softmax_f32_4096x4096", kSoftmax, {4096, 4096}),
      rows("layernorm_f32_4096x1024", kLayerNorm, {4096, 1024}),
      rows("tanh_affine_f32_256m", kTanhAffine, {1 << 16, 1 << 12}, DType::F32, Judged::Cuda),
      rows("exp_cos_f32_256m", kExpCos, {1 << 16, 1 << 12}, DType::F32, Judged::Cuda),
      rows("swiglu_bf16_16384x14336", kSwiglu, {16384, 14336}, DType::BF16, Judged::Cuda),
  };
  auto sizes = [&](const char* name, const Rows& kind, DType dtype) {
    for (auto [m, n] : {std::pair{16384, 4096}, {65536, 1024}, {4096, 32768}})
      list.push_back(rows(fmt::format("{}_{}_{}x{}", name, name_of(dtype), m, n), kind, {m, n},
                          dtype, Judged::Cuda));
  };
  sizes("softmax", kSoftmax, DType::F32);
  sizes("softmax", kSoftmax, DType::BF16);
  sizes("rmsnorm", kRmsNorm, DType::BF16);
  sizes("layernorm", kLayerNorm, DType::BF16);
  return list;
}

} // namespace egret::tool::bench
