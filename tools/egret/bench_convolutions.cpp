// Workloads of convolutions' gradients: by the data and by the weight.
#include "bench.h"

#include "egret/functional.h"
#include "egret/grad.h"

#include <fmt/format.h>

namespace egret::tool::bench {

namespace {

struct ConvolutionGradient {
  bool by_weight = false;
  std::int64_t batch = 1, channels = 1, outputs = 1, size = 1, kernel = 3, stride = 1, padding = 1;
  DType dtype = DType::BF16;
  bool last = false; ///< all tensors have their channels last in memory

  std::int64_t result() const { return (size + 2 * padding - kernel) / stride + 1; }
  std::string name() const {
    const std::string image = last ? fmt::format("{0}x{0}x{1}", size, channels)
                                   : fmt::format("{1}x{0}x{0}", size, channels);
    return fmt::format("conv2d_{}_{}_{}x{}to{}k{}{}", by_weight ? "dw" : "dx", name_of(dtype),
                       batch, image, outputs, kernel, stride > 1 ? fmt::format("s{}", stride) : "");
  }
  std::vector<std::int64_t> shape(std::int64_t first, std::int64_t many, std::int64_t wide) const {
    return last ? std::vector{first, wide, wide, many} : std::vector{first, many, wide, wide};
  }
  Tensor seen(const Tensor& t) const { return last ? t.permute({0, 3, 1, 2}) : t; }

  /// Of the gradient of the result, and of the other factor: the weight or the data.
  Tensor operator()(const std::vector<Tensor>& in) const {
    const std::int64_t many = by_weight ? in[0].size(last ? 3 : 1) : outputs;
    const std::int64_t few = in[1].size(last ? 3 : 1);
    const auto sizes = by_weight ? shape(many, few, kernel) : shape(in[0].size(0), few, size);
    Tensor sought = zeros(Shape(sizes.begin(), sizes.end()), dtype);
    sought.set_requires_grad();
    const Tensor x = seen(by_weight ? in[1] : sought), w = seen(by_weight ? sought : in[1]);
    const Tensor y = conv2d(x, w, {}, {.stride = stride, .padding = padding});
    const Tensor outputs_of[] = {y}, inputs_of[] = {sought}, seeds[] = {seen(in[0])};
    return grad(outputs_of, inputs_of, seeds)[0];
  }
  std::vector<Tensor> inputs(std::uint64_t set) const {
    const auto other = by_weight ? shape(batch, channels, size) : shape(outputs, channels, kernel);
    return {random_tensor(shape(batch, outputs, result()), 16 * set + 1, dtype),
            random_tensor(other, 16 * set + 2, dtype, by_weight ? 1 : 0.1)};
  }
};

/// Some channels of the last image, or the weights of some channels for some others.
Sample sample_of(const ConvolutionGradient& c, const std::vector<Tensor>& in) {
  constexpr std::int64_t kChannels = 2;
  const std::int64_t channel = c.last ? 3 : 1, few = std::min(c.channels, kChannels);
  Sample s{in, {}};
  s.inputs[1] = in[1].narrow(channel, 0, few).eval();
  s.inputs[0] = c.by_weight ? in[0].narrow(channel, 0, std::min(c.outputs, kChannels)).eval()
                            : in[0].narrow(0, c.batch - 1, 1).eval();
  const std::int64_t outer = c.by_weight ? std::min(c.outputs, kChannels) : 1,
                     wide = c.by_weight ? c.kernel : c.size, points = wide * wide;
  const std::int64_t begin = c.by_weight ? 0 : (c.batch - 1) * c.channels * points;
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t i = 0; i < few * points; ++i)
      s.elements.push_back(begin + o * c.channels * points +
                           (c.last ? i / few * c.channels + i % few : i));
  return s;
}

Workload workload_of(const ConvolutionGradient& c) {
  Workload w{c.name(),
             fmt::format("gradient of a convolution by its {}{}", c.by_weight ? "weight" : "data",
                         c.last ? ", channels last" : ""),
             name_of(c.dtype),
             Limit::None,
             {}};
  w.make = [c] {
    const auto make = [c](std::uint64_t set) { return c.inputs(set); };
    Case made = pure_case(
        c.name(), [c](const std::vector<Tensor>& in) { return c(in); }, make,
        [c](const std::vector<Tensor>& in) { return sample_of(c, in); },
        c.dtype == DType::F32 ? 1e-5 : 8e-3);
    const double points = double(c.result() * c.result() * c.batch),
                 data = double(c.size * c.size * c.batch * c.channels),
                 weight = double(c.outputs * c.channels * c.kernel * c.kernel);
    made.flops = 2 * points * weight;
    made.bytes = double(size_of(c.dtype)) * (data + weight + points * double(c.outputs));
    return made;
  };
  w.judged = Judged::Cuda;
  w.small = [c] {
    ConvolutionGradient small = c;
    small.batch = 1;
    small.size = 6;
    small.channels = small.outputs = 16;
    return traced([small](const std::vector<Tensor>& in) { return small(in); }, small.inputs(0));
  };
  return w;
}

} // namespace

std::vector<Workload> convolution_gradient_workloads() {
  std::vector<Workload> list;
  for (const bool by_weight : {false, true}) {
    for (const bool last : {false, true}) {
      list.push_back(workload_of({by_weight, 64, 256, 256, 14, 3, 1, 1, DType::BF16, last}));
      list.push_back(workload_of({by_weight, 32, 64, 64, 56, 3, 1, 1, DType::BF16, last}));
      list.push_back(workload_of({by_weight, 32, 128, 256, 28, 3, 2, 1, DType::BF16, last}));
    }
    list.push_back(workload_of({by_weight, 64, 512, 128, 28, 1, 1, 0, DType::BF16, true}));
    list.push_back(workload_of({by_weight, 32, 3, 64, 112, 7, 2, 3, DType::BF16, true}));
    list.push_back(workload_of({by_weight, 32, 64, 64, 56, 3, 1, 1, DType::F32, false}));
  }
  return list;
}

} // namespace egret::tool::bench
