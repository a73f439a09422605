// Pooling: views of windows, reduced.
#include "support/fail.h"
#include "tensor/pool_lines.h"

#include <algorithm>

namespace egret {

using namespace detail;

namespace detail {

std::vector<PoolLine> pool_lines(const Tensor& a, const PerAxis& kernel,
                                 const std::optional<PerAxis>& stride, const PerAxis& padding,
                                 const PerAxis& dilation, bool round_up, std::size_t spatial,
                                 const char* who) {
  const auto kernels = per_axis(kernel, spatial, 1, "kernel", who);
  const auto strides = stride ? per_axis(*stride, spatial, 1, "stride", who) : kernels;
  const auto paddings = per_axis(padding, spatial, 0, "padding", who);
  const auto dilations = per_axis(dilation, spatial, 1, "dilation", who);
  std::vector<PoolLine> lines;
  for (std::size_t i = 0; i < spatial; ++i) {
    const auto axis = static_cast<std::int64_t>(i + 2);
    PoolLine line{{kernels[i], strides[i], dilations[i]}, a.size(axis), paddings[i], 0};
    if (line.padding > line.windows.kernel / 2)
      fail(ErrorKind::Value, "{}: padding of {} is more than half the kernel of {}", who,
           line.padding, line.windows.kernel);
    const std::int64_t padded = line.n + 2 * line.padding, span = line.windows.span();
    const std::int64_t stride_of = line.windows.stride;
    if (line.n < 1 || padded + (round_up ? stride_of - 1 : 0) < span)
      fail(ErrorKind::Shape, "{}: the kernel spans {} elements and axis {} of {}, padded, has {}",
           who, span, axis - a.rank(), shape_of(a), padded);
    line.count = (padded - span + (round_up ? stride_of - 1 : 0)) / stride_of + 1;
    // A window that would begin behind the elements and the padding in front holds nothing.
    if (round_up && (line.count - 1) * stride_of >= line.n + line.padding)
      --line.count;
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::int64_t> kernel_axes(std::size_t spatial) {
  std::vector<std::int64_t> axes;
  for (std::size_t i = 0; i < spatial; ++i)
    axes.push_back(static_cast<std::int64_t>(2 * i + 3));
  return axes;
}

Tensor all_windows(const Tensor& x, const std::vector<PoolLine>& lines, Scalar fill,
                   const char* who) {
  return windows_of(x, 2, windowed(lines), fill, who);
}

std::vector<WindowedAxis> windowed(const std::vector<PoolLine>& lines) {
  std::vector<WindowedAxis> axes;
  for (const PoolLine& line : lines)
    axes.push_back({line.windows, line.padding, line.behind()});
  return axes;
}

} // namespace detail

namespace {

// Numbers along_axis spatial axis `i` of `spatial`, so that they broadcast against a result.
Tensor along_axis(const Tensor& line, std::size_t i, std::size_t spatial) {
  Shape shape(spatial, Expr(1));
  shape[i] = line.shape()[0];
  return reshape(line, shape);
}

Tensor max_pool(const Tensor& a, const PerAxis& kernel, const MaxPoolOptions& options,
                std::size_t spatial, const char* who) {
  const Batched operand = batched(a, spatial, who);
  const auto lines = pool_lines(operand.a, kernel, options.stride, options.padding,
                                options.dilation, options.ceil_mode, spatial, who);
  const Tensor x = all_windows(operand.a, lines, identity_of(Monoid::Max, a.dtype()), who);
  return operand.result(reduce(Op::ReduceMax, x, kernel_axes(spatial), false, who));
}

// How many elements each window of a line counts, i64.
Tensor counts_of(const PoolLine& line, bool padding_too) {
  const Tensor begin = iota(line.count, DType::I64) * line.windows.stride - line.padding;
  const Tensor end =
      minimum(begin + line.windows.kernel, line.n + (padding_too ? line.padding : 0));
  return end - (padding_too ? begin : maximum(begin, 0));
}

Tensor avg_pool(const Tensor& a, const PerAxis& kernel, const AvgPoolOptions& options,
                std::size_t spatial, const char* who) {
  const Batched operand = batched(a, spatial, who);
  const auto lines = pool_lines(operand.a, kernel, options.stride, options.padding, 1,
                                options.ceil_mode, spatial, who);
  if (options.divisor && *options.divisor == 0)
    fail(ErrorKind::Value, "{}: the divisor is 0", who);
  const DType type = as_float(a, who).dtype(), wide = accumulator_of(type);
  const Tensor x = all_windows(operand.a.to(wide), lines, Scalar::of(wide, std::int64_t{0}), who);
  const Tensor total = reduce(Op::ReduceSum, x, kernel_axes(spatial), false, who);
  double same = 1;
  bool differ = false;
  for (const PoolLine& line : lines) {
    same *= static_cast<double>(line.windows.kernel);
    differ |= line.padding > 0 && !options.count_include_pad;
    differ |= line.behind() > line.padding;
  }
  if (options.divisor || !differ) {
    const double divisor = options.divisor ? static_cast<double>(*options.divisor) : same;
    return operand.result((total / constant(wide, divisor)).to(type));
  }
  Tensor counts = constant(DType::I64, 1);
  for (std::size_t i = 0; i < spatial; ++i)
    counts = counts * along_axis(counts_of(lines[i], options.count_include_pad), i, spatial);
  return operand.result((total / counts.to(wide)).to(type));
}

// Windows of different lengths along_axis one axis: [n] becomes [size, length], `valid` where a
// window has an element.
struct Uneven {
  Tensor x, valid; ///< valid [size, length]; empty where all windows are full
  Tensor lengths;  ///< i64 [size]
};

Uneven uneven(const Tensor& a, std::int64_t axis, std::int64_t size, const char* who) {
  const std::int64_t n = a.size(axis);
  if (n < 1)
    fail(ErrorKind::Shape, "{}: axis {} of {} is empty; at least one element is needed", who,
         axis - a.rank(), shape_of(a));
  if (n % size == 0) {
    const Windows w{n / size, n / size};
    return {windows_of(a, axis, {{w}}, Scalar::of(a.dtype(), std::int64_t{0}), who),
            {},
            broadcast_to(constant(DType::I64, w.kernel), {size}, who)};
  }
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < size; ++i)
    longest = std::max(longest, ((i + 1) * n + size - 1) / size - i * n / size);
  const Tensor i = iota(size, DType::I64);
  const Tensor begin = floor_divide(i * n, size);
  const Tensor end = floor_divide((i + 1) * n + (size - 1), size);
  const Tensor at = unsqueeze(begin, 1) + iota(longest, DType::I64);
  const Tensor valid = at < unsqueeze(end, 1);
  return {take(a, where(valid, at, -1), axis), valid, end - begin};
}

Tensor adaptive_pool(const Tensor& a, const PerAxis& sizes, bool largest, std::size_t spatial,
                     const char* who) {
  const Batched operand = batched(a, spatial, who);
  const auto wanted = per_axis(sizes, spatial, 1, "size", who);
  const DType type = largest ? a.dtype() : as_float(a, who).dtype();
  Tensor x = largest ? operand.a : operand.a.to(accumulator_of(type));
  const Scalar lowest = identity_of(Monoid::Max, x.dtype());
  Tensor counts = constant(DType::I64, 1);
  for (std::size_t i = 0; i < spatial; ++i) {
    const auto axis = static_cast<std::int64_t>(2 * i + 2);
    Uneven windows = uneven(x, axis, wanted[i], who);
    x = windows.x;
    if (largest && windows.valid.defined()) {
      Shape line(x.shape().size(), Expr(1));
      std::copy_n(windows.valid.shape().begin(), 2, line.begin() + axis);
      x = where(reshape(windows.valid, line), x, constant(lowest));
    }
    counts = counts * along_axis(windows.lengths, i, spatial);
  }
  const Op op = largest ? Op::ReduceMax : Op::ReduceSum;
  const Tensor y = reduce(op, x, kernel_axes(spatial), false, who);
  return operand.result(largest ? y : (y / counts.to(y.dtype())).to(type));
}

} // namespace

#define EGRET_POOLING(n)                                                                           \
  Tensor max_pool##n##d(const Operand& a, const PerAxis& kernel, const MaxPoolOptions& options) {  \
    return max_pool(a, kernel, options, n, "max_pool" #n "d");                                     \
  }                                                                                                \
  Tensor avg_pool##n##d(const Operand& a, const PerAxis& kernel, const AvgPoolOptions& options) {  \
    return avg_pool(a, kernel, options, n, "avg_pool" #n "d");                                     \
  }                                                                                                \
  Tensor adaptive_avg_pool##n##d(const Operand& a, const PerAxis& sizes) {                         \
    return adaptive_pool(a, sizes, false, n, "adaptive_avg_pool" #n "d");                          \
  }                                                                                                \
  Tensor adaptive_max_pool##n##d(const Operand& a, const PerAxis& sizes) {                         \
    return adaptive_pool(a, sizes, true, n, "adaptive_max_pool" #n "d");                           \
  }
EGRET_POOLING(1)
EGRET_POOLING(2)
EGRET_POOLING(3)
#undef EGRET_POOLING

} // namespace egret
