// The windows that pooling slides along its axes.
#pragma once

#include "tensor/spatial.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace egret::detail {

/// The windows of one axis of n elements, and how many there are.
struct PoolLine {
  Windows windows;
  std::int64_t n, padding, count;
  /// Elements that the windows want behind the axis; negative: not all are read.
  std::int64_t behind() const { return windows.extent(count) - n - padding; }
};

/// Of the spatial axes of a [batch, channels, spatial...]; Error(Shape), Error(Value).
std::vector<PoolLine> pool_lines(const Tensor& a, const PerAxis& kernel,
                                 const std::optional<PerAxis>& stride, const PerAxis& padding,
                                 const PerAxis& dilation, bool round_up, std::size_t spatial,
                                 const char* who);

/// The axes of the kernels once each spatial axis has become [count, kernel].
std::vector<std::int64_t> kernel_axes(std::size_t spatial);

/// The windows with their padding.
std::vector<WindowedAxis> windowed(const std::vector<PoolLine>& lines);

/// Each spatial axis as [count, kernel], padded with `fill`.
Tensor all_windows(const Tensor& x, const std::vector<PoolLine>& lines, Scalar fill,
                   const char* who);

} // namespace egret::detail
