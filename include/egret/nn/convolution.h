// Convolutions and pooling as layers, over one, two or three axes: [batch, channels, spatial...].
#pragma once

#include "egret/functional/convolutions.h"
#include "egret/nn/module.h"
#include "egret/random.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace egret::nn {

/// conv1d, conv2d or conv3d with parameters as PyTorch names and starts them: uniform in
/// ±1/√(inputs of one output).
template <int Axes>
struct Conv {
  Tensor weight;              ///< [outputs, inputs/groups, kernel...]
  std::optional<Tensor> bias; ///< [outputs]
  std::vector<std::int64_t> stride, padding, dilation;
  std::int64_t groups = 1;
  bool same = false;

  Conv() = default;
  /// Error(Value) for sizes that are not positive and groups that do not divide the channels.
  Conv(std::int64_t inputs, std::int64_t outputs, const PerAxis& kernel, Generator& generator,
       const ConvOptions& options = {}, bool with_bias = true);
  Tensor operator()(const Operand& x) const;
  EGRET_FIELDS(weight, bias, stride, padding, dilation, groups, same)
};
using Conv1d = Conv<1>;
using Conv2d = Conv<2>;
using Conv3d = Conv<3>;

/// conv_transpose1d, 2d or 3d, likewise.
template <int Axes>
struct ConvTranspose {
  Tensor weight;              ///< [inputs, outputs/groups, kernel...]
  std::optional<Tensor> bias; ///< [outputs]
  std::vector<std::int64_t> stride, padding, output_padding, dilation;
  std::int64_t groups = 1;

  ConvTranspose() = default;
  ConvTranspose(std::int64_t inputs, std::int64_t outputs, const PerAxis& kernel,
                Generator& generator, const ConvTransposeOptions& options = {},
                bool with_bias = true);
  Tensor operator()(const Operand& x) const;
  EGRET_FIELDS(weight, bias, stride, padding, output_padding, dilation, groups)
};
using ConvTranspose1d = ConvTranspose<1>;
using ConvTranspose2d = ConvTranspose<2>;
using ConvTranspose3d = ConvTranspose<3>;

/// The largest element of each window.
template <int Axes>
struct MaxPool {
  std::vector<std::int64_t> kernel, stride, padding, dilation;
  bool ceil_mode = false;

  explicit MaxPool(const PerAxis& kernel = 1, const MaxPoolOptions& options = {})
      : kernel(kernel.values()), stride(options.stride.value_or(kernel).values()),
        padding(options.padding.values()), dilation(options.dilation.values()),
        ceil_mode(options.ceil_mode) {}
  Tensor operator()(const Operand& x) const;
  EGRET_FIELDS(kernel, stride, padding, dilation, ceil_mode)
};
using MaxPool1d = MaxPool<1>;
using MaxPool2d = MaxPool<2>;
using MaxPool3d = MaxPool<3>;

/// The mean of each window.
template <int Axes>
struct AvgPool {
  std::vector<std::int64_t> kernel, stride, padding;
  bool ceil_mode = false, count_include_pad = true;
  std::optional<std::int64_t> divisor;

  explicit AvgPool(const PerAxis& kernel = 1, const AvgPoolOptions& options = {})
      : kernel(kernel.values()), stride(options.stride.value_or(kernel).values()),
        padding(options.padding.values()), ceil_mode(options.ceil_mode),
        count_include_pad(options.count_include_pad), divisor(options.divisor) {}
  Tensor operator()(const Operand& x) const;
  EGRET_FIELDS(kernel, stride, padding, ceil_mode, count_include_pad, divisor)
};
using AvgPool1d = AvgPool<1>;
using AvgPool2d = AvgPool<2>;
using AvgPool3d = AvgPool<3>;

/// Pooling to given sizes, by mean or by maximum.
template <int Axes, bool Max>
struct AdaptivePool {
  std::vector<std::int64_t> sizes;

  explicit AdaptivePool(const PerAxis& sizes = 1) : sizes(sizes.values()) {}
  Tensor operator()(const Operand& x) const;
  EGRET_FIELDS(sizes)
};
using AdaptiveAvgPool1d = AdaptivePool<1, false>;
using AdaptiveAvgPool2d = AdaptivePool<2, false>;
using AdaptiveAvgPool3d = AdaptivePool<3, false>;
using AdaptiveMaxPool1d = AdaptivePool<1, true>;
using AdaptiveMaxPool2d = AdaptivePool<2, true>;
using AdaptiveMaxPool3d = AdaptivePool<3, true>;

} // namespace egret::nn
