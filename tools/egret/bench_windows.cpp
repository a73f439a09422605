// Workloads of windows: depthwise and grouped convolutions, convolutions of a residual network,
// pooling and its gradient, stencils.
#include "bench.h"

#include "egret/functional.h"
#include "egret/grad.h"

#include <fmt/format.h>

#include <algorithm>

namespace egret::tool::bench {

namespace {

/// A function of [batch, channels, spatial...] and of weights, and how a name says it.
struct Windows {
  std::string name, what;
  Function function;
  std::vector<std::int64_t> data, weight; ///< no weight: pooling
  std::int64_t points = 1;                ///< of a window, for each result
  std::vector<std::int64_t> seed;         ///< of the gradient that is taken, or none
  DType dtype = DType::F32;
  bool last = false; ///< the channels are the last axis

  /// Each result is made of all channels.
  bool dense() const { return !weight.empty() && weight[1] == data[last ? data.size() - 1 : 1]; }
};

Function convolution(std::int64_t stride, std::int64_t padding, std::int64_t groups) {
  return [=](const std::vector<Tensor>& in) {
    const ConvOptions options{.stride = stride, .padding = padding, .groups = groups};
    return in[0].rank() == 5 ? conv3d(in[0], in[1], {}, options)
                             : conv2d(in[0], in[1], {}, options);
  };
}

/// The same with the channels last in memory, of the operand and of the result.
Function channels_last(const Function& function) {
  return [=](const std::vector<Tensor>& in) {
    return function({in[0].permute({0, 3, 1, 2}), in[1]}).permute({0, 2, 3, 1});
  };
}

Tensor max_pool(const std::vector<Tensor>& in) {
  return max_pool2d(in[0], 3, {.stride = PerAxis(2), .padding = 1});
}

Tensor mean_pool(const std::vector<Tensor>& in) {
  return avg_pool2d(in[0], 3, {.stride = PerAxis(1), .padding = 1});
}

/// The gradient by the operand, given that of the result.
Tensor max_pool_gradient(const std::vector<Tensor>& in) {
  Tensor x = in[0] * 1.0;
  x.set_requires_grad();
  return grad((max_pool({x}) * in[1]).sum(), x);
}

std::vector<Tensor> inputs_of(const Windows& w, std::uint64_t set, std::int64_t batch) {
  std::vector<Tensor> inputs;
  for (auto shape : {w.data, w.weight, w.seed}) {
    if (shape.empty())
      continue;
    if (shape != w.weight)
      shape[0] = batch;
    inputs.push_back(random_tensor(shape, 16 * set + 1 + inputs.size(), w.dtype));
  }
  return inputs;
}

Case windows_case(const Windows& w) {
  const auto make = [=](std::uint64_t set) { return inputs_of(w, set, w.data[0]); };
  // The results of the last image; where each is made of all channels, which is much work, those
  // of its first few channels.
  const auto sample = [=](const std::vector<Tensor>& inputs) {
    constexpr std::int64_t kSampledChannels = 4;
    Sample s{inputs, {}};
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (w.weight.empty() || i == 0)
        s.inputs[i] = inputs[i].narrow(0, w.data[0] - 1, 1).eval();
    const std::int64_t image = w.function(s.inputs).numel();
    std::int64_t sampled = image, channels = 1, apart = 1; // of neighbours in the results
    if (w.dense()) {
      channels = std::min(w.weight[0], kSampledChannels);
      apart = w.last ? w.weight[0] : channels;
      s.inputs[1] = inputs[1].narrow(0, 0, channels).eval();
      sampled = image / w.weight[0] * channels;
    }
    for (std::int64_t i = 0; i < sampled; ++i)
      s.elements.push_back((w.data[0] - 1) * image + i / channels * apart + i % channels);
    return s;
  };
  Case c = pure_case(w.name, w.function, make, sample, w.dtype == DType::F32 ? 1e-5 : 8e-3);
  const auto inputs = make(0);
  const double results = static_cast<double>(w.function(inputs).numel());
  c.flops = results * static_cast<double>(w.points) * (w.weight.empty() ? 1 : 2);
  c.bytes = results;
  for (const Tensor& t : inputs)
    c.bytes += static_cast<double>(t.numel());
  c.bytes *= static_cast<double>(size_of(w.dtype));
  return c;
}

Workload windows(const Windows& w) {
  Workload out{w.name, w.what, name_of(w.dtype), Limit::None, [=] { return windows_case(w); }};
  out.judged = Judged::Both;
  // Spatial axes of 12 elements (the gradient's come from windows of stride 2), where that is
  // little enough to be interpreted.
  Windows small = w;
  const std::size_t first = w.last ? 1 : 2;
  double points = static_cast<double>(w.points * (w.weight.empty() ? w.data[1] : w.weight[0]));
  for (std::size_t i = first; i < first + w.data.size() - 2; ++i) {
    small.data[i] = 12;
    if (!w.seed.empty())
      small.seed[i] = 6;
    points *= 12;
  }
  if (points <= 1e6)
    out.small = [=] { return traced(small.function, inputs_of(small, 0, 1)); };
  return out;
}

} // namespace

std::vector<Workload> windows_workloads() {
  std::vector<Workload> list;
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const std::string type(name_of(dtype));
    const auto depthwise = convolution(1, 3, 64);
    list.push_back(windows({"depthwise_" + type + "_8x64x56x56k7",
                            "depthwise convolution of 7x7",
                            depthwise,
                            {8, 64, 56, 56},
                            {64, 1, 7, 7},
                            49,
                            {},
                            dtype}));
    list.push_back(windows({"depthwise_" + type + "_8x56x56x64k7",
                            "depthwise convolution of 7x7, channels last",
                            channels_last(depthwise),
                            {8, 56, 56, 64},
                            {64, 1, 7, 7},
                            49,
                            {},
                            dtype,
                            true}));
  }
  list.push_back(windows({"depthwise_f32_8x128x56x56k3s2",
                          "depthwise convolution of 3x3, stride 2",
                          convolution(2, 1, 128),
                          {8, 128, 56, 56},
                          {128, 1, 3, 3},
                          9,
                          {}}));
  list.push_back(windows({"grouped_f32_8x128x28x28k3g32",
                          "convolution of 3x3 in 32 groups",
                          convolution(1, 1, 32),
                          {8, 128, 28, 28},
                          {128, 4, 3, 3},
                          36,
                          {}}));
  list.push_back(windows({"conv2d_f32_8x64x56x56k3",
                          "convolution of 3x3",
                          convolution(1, 1, 1),
                          {8, 64, 56, 56},
                          {64, 64, 3, 3},
                          576,
                          {}}));
  list.push_back(windows({"conv2d_f32_8x256x14x14k3",
                          "convolution of 3x3",
                          convolution(1, 1, 1),
                          {8, 256, 14, 14},
                          {256, 256, 3, 3},
                          2304,
                          {}}));
  list.push_back(windows({"conv2d_bf16_8x64x56x56k3",
                          "convolution of 3x3",
                          convolution(1, 1, 1),
                          {8, 64, 56, 56},
                          {64, 64, 3, 3},
                          576,
                          {},
                          DType::BF16}));
  list.push_back(windows({"conv2d_bf16_8x56x56x64k3",
                          "convolution of 3x3, channels last",
                          channels_last(convolution(1, 1, 1)),
                          {8, 56, 56, 64},
                          {64, 64, 3, 3},
                          576,
                          {},
                          DType::BF16,
                          true}));
  list.push_back(windows({"conv2d_bf16_64x256x14x14k3",
                          "convolution of 3x3",
                          convolution(1, 1, 1),
                          {64, 256, 14, 14},
                          {256, 256, 3, 3},
                          2304,
                          {},
                          DType::BF16}));
  list.push_back(windows({"conv2d_bf16_64x14x14x256k3",
                          "convolution of 3x3, channels last",
                          channels_last(convolution(1, 1, 1)),
                          {64, 14, 14, 256},
                          {256, 256, 3, 3},
                          2304,
                          {},
                          DType::BF16,
                          true}));
  list.push_back(windows({"conv2d_f32_8x3x224x224k7s2",
                          "convolution of 7x7, stride 2",
                          convolution(2, 3, 1),
                          {8, 3, 224, 224},
                          {64, 3, 7, 7},
                          147,
                          {}}));
  list.push_back(windows({"conv3d_f32_2x16x16x32x32k3",
                          "convolution of 3x3x3",
                          convolution(1, 1, 1),
                          {2, 16, 16, 32, 32},
                          {32, 16, 3, 3, 3},
                          432,
                          {}}));
  list.push_back(windows({"maxpool_f32_8x64x112x112k3s2",
                          "maxima of 3x3, stride 2",
                          max_pool,
                          {8, 64, 112, 112},
                          {},
                          9,
                          {}}));
  list.push_back(windows({"maxpool_bwd_f32_8x64x112x112k3s2",
                          "the gradient of maxima of 3x3",
                          max_pool_gradient,
                          {8, 64, 112, 112},
                          {},
                          9,
                          {8, 64, 56, 56}}));
  list.push_back(
      windows({"avgpool_f32_8x64x56x56k3", "means of 3x3", mean_pool, {8, 64, 56, 56}, {}, 9, {}}));
  return list;
}

} // namespace egret::tool::bench
