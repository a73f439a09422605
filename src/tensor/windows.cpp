#include "tensor/windows.h"

#include <algorithm>

namespace egret::detail {

namespace {

std::size_t place(std::int64_t axis) {
  return static_cast<std::size_t>(axis);
}

// `shape` with `dims` instead of the `count` dims from `axis` on.
Shape with(Shape shape, std::int64_t axis, std::size_t count, std::initializer_list<Expr> dims) {
  const auto at = shape.begin() + axis;
  shape.insert(shape.erase(at, at + static_cast<std::ptrdiff_t>(count)), dims);
  return shape;
}

Scalar zero_of(const Tensor& a) {
  return Scalar::of(a.dtype(), std::int64_t{0});
}

// Windows of neighbouring elements that do not overlap: every stride elements are a row.
bool apart(const Windows& w) {
  return w.kernel <= w.stride && (w.dilation == 1 || w.kernel == 1);
}

// Overlapping windows: the axis is repeated `taps` times, and each copy begins `skew` elements
// later than the one before. Of every stride elements of a copy the first `phases` are read: window
// i has element i * stride + phase of each copy, kernel element tap * phases + phase. So a kernel
// without dilation has a copy for each stride of it.
struct Copies {
  std::int64_t taps, skew, phases;
  std::int64_t length; ///< of a copy
};
Copies copies_of(const Windows& w, std::int64_t count) {
  Copies c{w.kernel, w.dilation, 1, 0};
  if (w.dilation == 1)
    c = {(w.kernel + w.stride - 1) / w.stride, w.stride, w.stride, 0};
  c.length = count * w.stride + (c.taps - 1) * c.skew;
  return c;
}

// The same of two neighbouring axes.
Tensor swapped(const Tensor& a, std::int64_t axis) {
  return transpose(a, axis, axis + 1);
}

} // namespace

Tensor cut(const Tensor& a, std::int64_t axis, std::int64_t begin, const Expr& length,
           const char* who) {
  if (begin == 0 && a.shape()[place(axis)] == length)
    return a;
  ir::Attrs attrs{.shape = a.shape()};
  attrs.before.assign(attrs.shape.size(), Expr(0));
  attrs.before[place(axis)] = begin;
  attrs.shape[place(axis)] = Expr(begin) + length;
  return apply(Op::Shrink, {&a}, std::move(attrs), who);
}

Tensor framed(const Tensor& a, std::int64_t axis, std::int64_t before, std::int64_t after,
              Scalar fill, const char* who) {
  const std::int64_t begin = std::max<std::int64_t>(0, -before);
  const Expr length = a.shape()[place(axis)] - Expr(begin + std::max<std::int64_t>(0, -after));
  const Tensor inner = cut(a, axis, begin, length, who);
  if (before <= 0 && after <= 0)
    return inner;
  ir::Attrs attrs{.value = fill};
  attrs.before.assign(a.shape().size(), Expr(0));
  attrs.after = attrs.before;
  attrs.before[place(axis)] = std::max<std::int64_t>(0, before);
  attrs.after[place(axis)] = std::max<std::int64_t>(0, after);
  return apply(Op::Pad, {&inner}, std::move(attrs), who);
}

Tensor windows_of(const Tensor& a, std::int64_t axis, const std::vector<WindowedAxis>& lines,
                  Scalar fill, const char* who) {
  // Each axis as [copies, elements]; all copies are made by one operation.
  Tensor x = a;
  std::vector<std::int64_t> counts;
  Shape single, copied;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto& [w, before, after] = lines[i];
    const std::int64_t n = a.size(axis + static_cast<std::int64_t>(i));
    counts.push_back(w.count(n + before + after));
    single.insert(single.end(), {Expr(1), Expr(n)});
    copied.insert(copied.end(), {Expr(apart(w) ? 1 : copies_of(w, counts[i]).taps), Expr(n)});
  }
  const auto shape_with = [&](const Shape& dims) {
    Shape shape(a.shape().begin(), a.shape().begin() + axis);
    shape.insert(shape.end(), dims.begin(), dims.end());
    shape.insert(shape.end(), a.shape().begin() + axis + std::ssize(lines), a.shape().end());
    return shape;
  };
  x = expand(reshape(x, shape_with(single)), shape_with(copied));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto& [w, before, after] = lines[i];
    const std::int64_t at = axis + 2 * static_cast<std::int64_t>(i), count = counts[i];
    const std::int64_t n = x.size(at + 1);
    const auto padded = [&, front = before](std::int64_t length) {
      x = framed(x, at + 1, front, length - front - n, fill, who);
    };
    const auto split = [&](std::size_t dims, std::initializer_list<Expr> into) {
      x = reshape(x, with(x.shape(), at, dims, into));
    };
    if (apart(w)) {
      padded(count * w.stride);
      split(2, {count, w.stride});
      x = cut(x, at + 1, 0, w.kernel, who);
      continue;
    }
    const Copies c = copies_of(w, count);
    padded(c.length);
    split(2, {c.taps * c.length});
    x = framed(x, at, 0, c.taps * c.skew, zero_of(a), who);
    split(1, {c.taps, c.length + c.skew});
    x = cut(x, at + 1, 0, count * w.stride, who);
    split(2, {c.taps, count, w.stride});
    x = swapped(cut(x, at + 2, 0, c.phases, who), at);
    split(3, {count, c.taps * c.phases});
    x = cut(x, at + 1, 0, w.kernel, who);
  }
  return x;
}

Tensor folded(const Tensor& a, std::int64_t axis, const std::vector<WindowedAxis>& lines,
              const char* who) {
  const Scalar zero = zero_of(a);
  Tensor x = a;
  std::vector<std::int64_t> copies;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto& [w, before, after] = lines[i];
    const std::int64_t at = axis + 2 * static_cast<std::int64_t>(i), count = x.size(at);
    const std::int64_t n = w.extent(count) - before - after;
    const auto join = [&](std::size_t dims, std::initializer_list<Expr> into) {
      x = reshape(x, with(x.shape(), at, dims, into));
    };
    copies.push_back(at);
    if (apart(w)) {
      x = framed(x, at + 1, 0, w.stride - w.kernel, zero, who);
      join(2, {1, count * w.stride});
      x = framed(x, at + 1, -before, n + before - count * w.stride, zero, who);
      continue;
    }
    const Copies c = copies_of(w, count);
    x = framed(x, at + 1, 0, c.taps * c.phases - w.kernel, zero, who);
    join(2, {count, c.taps, c.phases});
    x = framed(swapped(x, at), at + 2, 0, w.stride - c.phases, zero, who);
    join(3, {c.taps, count * w.stride});
    x = framed(x, at + 1, 0, c.length + c.skew - count * w.stride, zero, who);
    join(2, {c.taps * (c.length + c.skew)});
    x = cut(x, at, 0, c.taps * c.length, who);
    join(1, {c.taps, c.length});
    x = framed(x, at + 1, -before, n + before - c.length, zero, who);
  }
  // Windows that do not overlap add nothing.
  const bool sums =
      std::any_of(copies.begin(), copies.end(), [&](std::int64_t at) { return x.size(at) > 1; });
  if (sums)
    return reduce(Op::ReduceSum, x, copies, false, who);
  Shape shape(a.shape().begin(), a.shape().begin() + axis);
  for (const std::int64_t at : copies)
    shape.push_back(x.shape()[place(at + 1)]);
  shape.insert(shape.end(), a.shape().begin() + axis + 2 * std::ssize(lines), a.shape().end());
  return reshape(x, shape);
}

} // namespace egret::detail
