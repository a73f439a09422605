#include "egret/nn/convolution.h"

#include "support/fail.h"

#include <cmath>

namespace egret::nn {

namespace {

/// Uniform in ±1/√inputs: the start of weight and bias.
struct Start {
  double bound;
  Generator& generator;
  Tensor operator()(const Shape& shape) const {
    return uniform(shape, -bound, bound, generator).set_requires_grad();
  }
};

/// The kernel's dims, after all numbers are checked.
std::vector<std::int64_t> kernel_of(const char* who, int axes, const PerAxis& kernel,
                                    std::int64_t inputs, std::int64_t outputs,
                                    std::int64_t groups) {
  std::vector<std::int64_t> dims = kernel.values();
  if (dims.size() == 1)
    dims.assign(static_cast<std::size_t>(axes), dims[0]);
  if (dims.size() != static_cast<std::size_t>(axes))
    fail(ErrorKind::Value, "{}: a kernel of {} sizes for {} axes", who, dims.size(), axes);
  for (std::int64_t size : {inputs, outputs, groups})
    if (size <= 0)
      fail(ErrorKind::Value, "{}: {} inputs, {} outputs, {} groups; all must be positive", who,
           inputs, outputs, groups);
  for (std::int64_t dim : dims)
    if (dim <= 0)
      fail(ErrorKind::Value, "{}: a kernel of size {}", who, dim);
  if (inputs % groups != 0 || outputs % groups != 0)
    fail(ErrorKind::Value, "{}: {} groups do not divide {} inputs and {} outputs", who, groups,
         inputs, outputs);
  return dims;
}

struct Weights {
  Tensor weight;
  std::optional<Tensor> bias;
};

Weights weights_of(std::int64_t first, std::int64_t second, const std::vector<std::int64_t>& kernel,
                   std::int64_t outputs, Generator& generator, bool with_bias) {
  Shape shape = {first, second};
  double inputs = static_cast<double>(second);
  for (std::int64_t dim : kernel) {
    shape.emplace_back(dim);
    inputs *= static_cast<double>(dim);
  }
  const Start start{1 / std::sqrt(inputs), generator};
  Weights weights{start(shape), {}};
  if (with_bias)
    weights.bias = start({outputs});
  return weights;
}

Tensor or_none(const std::optional<Tensor>& bias) {
  return bias ? *bias : Tensor();
}

} // namespace

template <int Axes>
Conv<Axes>::Conv(std::int64_t inputs, std::int64_t outputs, const PerAxis& kernel,
                 Generator& generator, const ConvOptions& o, bool with_bias)
    : stride(o.stride.values()), padding(o.padding.values()), dilation(o.dilation.values()),
      groups(o.groups), same(o.same) {
  const auto dims = kernel_of("Conv", Axes, kernel, inputs, outputs, groups);
  auto made = weights_of(outputs, inputs / groups, dims, outputs, generator, with_bias);
  weight = std::move(made.weight);
  bias = std::move(made.bias);
}

template <int Axes>
Tensor Conv<Axes>::operator()(const Operand& x) const {
  const ConvOptions o{
      .stride = stride, .padding = padding, .dilation = dilation, .groups = groups, .same = same};
  if constexpr (Axes == 1)
    return conv1d(x, weight, or_none(bias), o);
  else if constexpr (Axes == 2)
    return conv2d(x, weight, or_none(bias), o);
  else
    return conv3d(x, weight, or_none(bias), o);
}

template <int Axes>
ConvTranspose<Axes>::ConvTranspose(std::int64_t inputs, std::int64_t outputs, const PerAxis& kernel,
                                   Generator& generator, const ConvTransposeOptions& o,
                                   bool with_bias)
    : stride(o.stride.values()), padding(o.padding.values()),
      output_padding(o.output_padding.values()), dilation(o.dilation.values()), groups(o.groups) {
  const auto dims = kernel_of("ConvTranspose", Axes, kernel, inputs, outputs, groups);
  auto made = weights_of(inputs, outputs / groups, dims, outputs, generator, with_bias);
  weight = std::move(made.weight);
  bias = std::move(made.bias);
}

template <int Axes>
Tensor ConvTranspose<Axes>::operator()(const Operand& x) const {
  const ConvTransposeOptions o{.stride = stride,
                               .padding = padding,
                               .output_padding = output_padding,
                               .dilation = dilation,
                               .groups = groups};
  if constexpr (Axes == 1)
    return conv_transpose1d(x, weight, or_none(bias), o);
  else if constexpr (Axes == 2)
    return conv_transpose2d(x, weight, or_none(bias), o);
  else
    return conv_transpose3d(x, weight, or_none(bias), o);
}

template <int Axes>
Tensor MaxPool<Axes>::operator()(const Operand& x) const {
  const MaxPoolOptions o{
      .stride = PerAxis(stride), .padding = padding, .dilation = dilation, .ceil_mode = ceil_mode};
  if constexpr (Axes == 1)
    return max_pool1d(x, kernel, o);
  else if constexpr (Axes == 2)
    return max_pool2d(x, kernel, o);
  else
    return max_pool3d(x, kernel, o);
}

template <int Axes>
Tensor AvgPool<Axes>::operator()(const Operand& x) const {
  const AvgPoolOptions o{.stride = PerAxis(stride),
                         .padding = padding,
                         .ceil_mode = ceil_mode,
                         .count_include_pad = count_include_pad,
                         .divisor = divisor};
  if constexpr (Axes == 1)
    return avg_pool1d(x, kernel, o);
  else if constexpr (Axes == 2)
    return avg_pool2d(x, kernel, o);
  else
    return avg_pool3d(x, kernel, o);
}

template <int Axes, bool Max>
Tensor AdaptivePool<Axes, Max>::operator()(const Operand& x) const {
  if constexpr (Axes == 1)
    return Max ? adaptive_max_pool1d(x, sizes) : adaptive_avg_pool1d(x, sizes);
  else if constexpr (Axes == 2)
    return Max ? adaptive_max_pool2d(x, sizes) : adaptive_avg_pool2d(x, sizes);
  else
    return Max ? adaptive_max_pool3d(x, sizes) : adaptive_avg_pool3d(x, sizes);
}

#define EGRET_INSTANTIATE(axes)                                                                    \
  template struct Conv<axes>;                                                                      \
  template struct ConvTranspose<axes>;                                                             \
  template struct MaxPool<axes>;                                                                   \
  template struct AvgPool<axes>;                                                                   \
  template struct AdaptivePool<axes, false>;                                                       \
  template struct AdaptivePool<axes, true>;
EGRET_INSTANTIATE(1)
EGRET_INSTANTIATE(2)
EGRET_INSTANTIATE(3)
#undef EGRET_INSTANTIATE

} // namespace egret::nn
