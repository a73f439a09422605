// Windows that slide along an axis, as views: what convolutions, pooling and unfold are made of.
#pragma once

#include "tensor/ops.h"

#include <vector>

namespace egret::detail {

/// `length` elements of an axis from `begin` on.
Tensor cut(const Tensor& a, std::int64_t axis, std::int64_t begin, const Expr& length,
           const char* who);
/// Elements of `fill` in front of an axis and behind it; negative amounts take elements away.
Tensor framed(const Tensor& a, std::int64_t axis, std::int64_t before, std::int64_t after,
              Scalar fill, const char* who);

/// Where windows lie: element k of window i is element i * stride + k * dilation.
struct Windows {
  std::int64_t kernel, stride = 1, dilation = 1;

  /// From the first element of a window to behind its last.
  std::int64_t span() const { return (kernel - 1) * dilation + 1; }
  /// How many fit into n elements, n at least span().
  std::int64_t count(std::int64_t n) const { return (n - span()) / stride + 1; }
  /// The fewest elements that hold `count` windows.
  std::int64_t extent(std::int64_t count) const { return (count - 1) * stride + span(); }
};

/// Windows along one axis of n elements, `before` more in front of it and `after` behind; negative
/// amounts take elements away.
struct WindowedAxis {
  Windows windows;
  std::int64_t before = 0, after = 0;
};

/// The axes from `axis` on, each [n], become two each, [count, kernel]; what is added is `fill`. It
/// is a view, whose gradient is one sum, over the windows in which an element lies.
Tensor windows_of(const Tensor& a, std::int64_t axis, const std::vector<WindowedAxis>& lines,
                  Scalar fill, const char* who);
/// The reverse: pairs of axes [count, kernel] become [extent(count) - before - after], overlapping
/// elements added in one sum.
Tensor folded(const Tensor& a, std::int64_t axis, const std::vector<WindowedAxis>& lines,
              const char* who);

} // namespace egret::detail
