// Windows that slide along an axis, as views: what convolutions, pooling and unfold are made of.
#pragma once

#include "tensor/ops.h"

namespace egret::detail {

/// `length` elements of an axis from `begin` on.
Tensor cut(const Tensor& a, std::int64_t axis, std::int64_t begin, std::int64_t length,
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

/// The axis [n] becomes two, [count, kernel]. It is a view, whose gradient is folded().
Tensor windows_of(const Tensor& a, std::int64_t axis, const Windows& w, const char* who);
/// The reverse: two axes [count, kernel] become [extent(count)], overlapping elements added.
Tensor folded(const Tensor& a, std::int64_t axis, const Windows& w, const char* who);

} // namespace egret::detail
