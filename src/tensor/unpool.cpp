// Pooling that tells where its elements stood, and what puts them back; norms of windows.
#include "egret/functional/indices.h"

#include "support/fail.h"
#include "tensor/pool_lines.h"

#include <algorithm>

namespace egret {

using namespace detail;

namespace {

// [count, kernel]: which element of the axis each element of a window is; outside it in padding.
Tensor elements_of(const PoolLine& line) {
  const Tensor begin = iota(line.count, DType::I64) * line.windows.stride - line.padding;
  return unsqueeze(begin, 1) + iota(line.windows.kernel, DType::I64) * line.windows.dilation;
}

// Along line i of windows [batch, channels, count, kernel, ...], so that they broadcast.
Tensor along_windows(const Tensor& line, std::size_t i, std::size_t spatial) {
  Shape shape(2 + 2 * spatial, Expr(1));
  shape[2 + 2 * i] = line.shape()[0];
  shape[3 + 2 * i] = line.shape()[1];
  return reshape(line, shape);
}

// [batch, channels, counts..., all elements of a window].
Tensor kernels_last(const Tensor& x, std::size_t spatial) {
  std::vector<std::int64_t> order = {0, 1};
  for (std::int64_t kernel = 0; kernel < 2; ++kernel)
    for (std::size_t i = 0; i < spatial; ++i)
      order.push_back(static_cast<std::int64_t>(2 + 2 * i) + kernel);
  return flatten(x.permute(order), static_cast<std::int64_t>(2 + spatial), -1);
}

Extreme pool_with_indices(const Tensor& a, const PerAxis& kernel, const MaxPoolOptions& options,
                          std::size_t spatial, const char* who) {
  const Batched operand = batched(a, spatial, who);
  const auto lines = pool_lines(operand.a, kernel, options.stride, options.padding,
                                options.dilation, options.ceil_mode, spatial, who);
  const Tensor x =
      unary(Op::StopGradient,
            all_windows(operand.a, lines, identity_of(Monoid::Max, a.dtype()), who), who);
  Tensor inside = constant(DType::Bool, 1), number = constant(DType::I64, 0);
  for (std::size_t i = 0; i < spatial; ++i) {
    const Tensor at = along_windows(elements_of(lines[i]), i, spatial);
    inside = inside & (at >= 0) & (at < lines[i].n);
    number = number * lines[i].n + at;
  }
  // The first element of a window that is the largest; padding may be as low as an element.
  const Tensor top = reduce(Op::ReduceMax, x, kernel_axes(spatial), true, who);
  const Tensor hit = inside & ((x == top) | (x != x));
  const Tensor hits = kernels_last(hit, spatial);
  const Tensor numbers = kernels_last(broadcast_to(number, x.shape(), who), spatial);
  Tensor indices = squeeze(gather(numbers, -1, argmax(hits.to(DType::I32), -1, true)), -1);
  const Tensor flat = flatten(operand.a, 2, -1);
  Tensor values = gather(flat, 2, flatten(indices, 2, -1)).reshape(indices.shape());
  // Only a dilated window can step over all elements between two paddings.
  if (std::any_of(lines.begin(), lines.end(), [](const PoolLine& line) {
        return line.padding > 0 && line.windows.dilation > 1;
      })) {
    const Tensor met = any(hits, -1);
    indices = where(met, indices, -1);
    values = where(met, values, constant(identity_of(Monoid::Max, a.dtype())));
  }
  return {operand.result(values), operand.result(indices)};
}

Tensor unpool(const Tensor& a, const Tensor& indices, const PerAxis& kernel,
              const MaxUnpoolOptions& options, std::size_t spatial, const char* who) {
  const Batched operand = batched(a, spatial, who);
  Access::held(indices, who);
  require_integer(indices, who, "the indices");
  if (indices.shape() != a.shape())
    fail(ErrorKind::Shape, "{}: indices {} do not fit {}; shapes must be equal", who,
         shape_of(indices), shape_of(a));
  const auto kernels = per_axis(kernel, spatial, 1, "kernel", who);
  const auto strides =
      options.stride ? per_axis(*options.stride, spatial, 1, "stride", who) : kernels;
  const auto paddings = per_axis(options.padding, spatial, 0, "padding", who);
  std::vector<std::int64_t> sizes;
  if (options.sizes)
    sizes = per_axis(*options.sizes, spatial, 1, "size", who);
  else
    for (std::size_t i = 0; i < spatial; ++i)
      sizes.push_back((operand.a.size(static_cast<std::int64_t>(i) + 2) - 1) * strides[i] -
                      2 * paddings[i] + kernels[i]);
  Shape shape = {operand.a.shape()[0], operand.a.shape()[1]};
  Expr all = 1;
  for (std::int64_t size : sizes) {
    if (size < 1)
      fail(ErrorKind::Shape, "{}: padding leaves nothing of {}; sizes would be [{}]", who,
           shape_of(a), fmt::join(sizes, ","));
    shape.push_back(size);
    all = all * size;
  }
  const Tensor place = operand.added ? unsqueeze(indices, 0) : indices;
  const Tensor put = scatter(zeros({shape[0], shape[1], all}, a.dtype()), 2, flatten(place, 2, -1),
                             flatten(operand.a, 2, -1));
  return operand.result(reshape(put, shape));
}

Tensor lp_pool(const Tensor& a, double p, const PerAxis& kernel, const LpPoolOptions& options,
               std::size_t spatial, const char* who) {
  if (!(p >= 1))
    fail(ErrorKind::Value, "{}: p is {}; it is at least 1", who, p);
  const Batched operand = batched(as_float(a, who), spatial, who);
  const auto lines =
      pool_lines(operand.a, kernel, options.stride, 0, 1, options.ceil_mode, spatial, who);
  const Tensor wide = widened(operand.a);
  const Tensor x = all_windows(wide, lines, Scalar::of(wide.dtype(), std::int64_t{0}), who);
  return operand.result(rounded_to(norm(x, kernel_axes(spatial), false, p), operand.a.dtype()));
}

// Of the spatial axes; not rounded up.
std::vector<PoolLine> fold_lines(const std::vector<std::int64_t>& sizes, const PerAxis& kernel,
                                 const FoldOptions& options, const char* who) {
  const std::size_t spatial = sizes.size();
  const auto kernels = per_axis(kernel, spatial, 1, "kernel", who);
  const auto strides = per_axis(options.stride, spatial, 1, "stride", who);
  const auto paddings = per_axis(options.padding, spatial, 0, "padding", who);
  const auto dilations = per_axis(options.dilation, spatial, 1, "dilation", who);
  std::vector<PoolLine> lines;
  for (std::size_t i = 0; i < spatial; ++i) {
    PoolLine line{{kernels[i], strides[i], dilations[i]}, sizes[i], paddings[i], 0};
    const std::int64_t padded = line.n + 2 * line.padding;
    if (line.n < 1 || padded < line.windows.span())
      fail(ErrorKind::Shape, "{}: the kernel spans {} elements and the {} [{}], padded, has {}",
           who, line.windows.span(), spatial == 2 ? "image" : "operand", fmt::join(sizes, ","),
           padded);
    line.count = line.windows.count(padded);
    lines.push_back(line);
  }
  return lines;
}

// [batch, channels, count, kernel, count, kernel ..] to [batch, channels, kernel .., count ..].
std::vector<std::int64_t> kernels_first(std::size_t spatial) {
  std::vector<std::int64_t> order = {0, 1};
  for (std::size_t i = 0; i < spatial; ++i)
    order.push_back(static_cast<std::int64_t>(2 * i + 3));
  for (std::size_t i = 0; i < spatial; ++i)
    order.push_back(static_cast<std::int64_t>(2 * i + 2));
  return order;
}

Tensor unfolded(const Tensor& a, const PerAxis& kernel, const FoldOptions& options,
                std::size_t spatial, const char* who) {
  const Batched operand = batched(a, spatial, who);
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < spatial; ++i)
    sizes.push_back(operand.a.size(static_cast<std::int64_t>(i + 2)));
  const auto lines = fold_lines(sizes, kernel, options, who);
  const Tensor x = all_windows(operand.a, lines, Scalar::of(a.dtype(), std::int64_t{0}), who);
  Expr elements = x.shape()[1], windows(1);
  for (const PoolLine& line : lines) {
    elements = elements * line.windows.kernel;
    windows = windows * line.count;
  }
  return operand.result(
      x.permute(kernels_first(spatial)).reshape({x.shape()[0], elements, windows}));
}

Tensor folded_back(const Tensor& a, const PerAxis& sizes, const PerAxis& kernel,
                   const FoldOptions& options, std::size_t spatial, const char* who) {
  Access::held(a, who);
  if (a.rank() != 2 && a.rank() != 3)
    fail(ErrorKind::Shape, "{}: got {}; it must be [batch, channels * kernel, windows]", who,
         shape_of(a));
  const Batched operand{a.rank() == 2 ? unsqueeze(a, 0) : Tensor(a), a.rank() == 2};
  const auto lines = fold_lines(per_axis(sizes, spatial, 1, "size", who), kernel, options, who);
  std::int64_t elements = 1, windows = 1;
  for (const PoolLine& line : lines) {
    elements *= line.windows.kernel;
    windows *= line.count;
  }
  if (operand.a.size(1) % elements != 0 || operand.a.size(2) != windows)
    fail(ErrorKind::Shape,
         "{}: {} does not fit; a kernel of {} elements and {} windows need [batch, channels * {}, "
         "{}]",
         who, shape_of(a), elements, windows, elements, windows);
  Shape apart = {operand.a.shape()[0], operand.a.size(1) / elements};
  for (const PoolLine& line : lines)
    apart.push_back(line.windows.kernel);
  for (const PoolLine& line : lines)
    apart.push_back(line.count);
  const auto order = kernels_first(spatial);
  std::vector<std::int64_t> back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  const Tensor x = operand.a.reshape(apart).permute(back);
  return operand.result(folded(x, 2, windowed(lines), who));
}

} // namespace

#define EGRET_FOLDING(n, name)                                                                     \
  Tensor un##name(const Operand& a, const PerAxis& kernel, const FoldOptions& options) {           \
    return unfolded(a, kernel, options, n, "un" #name);                                            \
  }                                                                                                \
  Tensor name(const Operand& a, const PerAxis& sizes, const PerAxis& kernel,                       \
              const FoldOptions& options) {                                                        \
    return folded_back(a, sizes, kernel, options, n, #name);                                       \
  }
EGRET_FOLDING(1, fold1d)
EGRET_FOLDING(2, fold)
EGRET_FOLDING(3, fold3d)
#undef EGRET_FOLDING

#define EGRET_UNPOOLING(n)                                                                         \
  Extreme max_pool##n##d_with_indices(const Operand& a, const PerAxis& kernel,                     \
                                      const MaxPoolOptions& options) {                             \
    return pool_with_indices(a, kernel, options, n, "max_pool" #n "d_with_indices");               \
  }                                                                                                \
  Tensor max_unpool##n##d(const Operand& a, const Operand& indices, const PerAxis& kernel,         \
                          const MaxUnpoolOptions& options) {                                       \
    return unpool(a, indices, kernel, options, n, "max_unpool" #n "d");                            \
  }                                                                                                \
  Tensor lp_pool##n##d(const Operand& a, double p, const PerAxis& kernel,                          \
                       const LpPoolOptions& options) {                                             \
    return lp_pool(a, p, kernel, options, n, "lp_pool" #n "d");                                    \
  }
EGRET_UNPOOLING(1)
EGRET_UNPOOLING(2)
EGRET_UNPOOLING(3)
#undef EGRET_UNPOOLING

} // namespace egret
