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

// For overlapping windows the axis is repeated and cut into `kernel` rows, each of which begins
// `dilation` elements later than the one before: m * n + dilation is the length of a row.
struct Rows {
  std::int64_t length, repeats;
};
Rows rows_of(const Windows& w, std::int64_t n, std::int64_t count) {
  const std::int64_t whole = std::max<std::int64_t>(1, (count * w.stride - w.dilation + n - 1) / n);
  const std::int64_t length = whole * n + w.dilation;
  return {length, (w.kernel * length + n - 1) / n};
}

} // namespace

Tensor cut(const Tensor& a, std::int64_t axis, std::int64_t begin, std::int64_t length,
           const char* who) {
  if (begin == 0 && a.shape()[place(axis)] == Expr(length))
    return a;
  ir::Attrs attrs{.shape = a.shape()};
  attrs.before.assign(attrs.shape.size(), Expr(0));
  attrs.before[place(axis)] = begin;
  attrs.shape[place(axis)] = begin + length;
  return apply(Op::Shrink, {&a}, std::move(attrs), who);
}

Tensor framed(const Tensor& a, std::int64_t axis, std::int64_t before, std::int64_t after,
              Scalar fill, const char* who) {
  const std::int64_t begin = std::max<std::int64_t>(0, -before);
  const std::int64_t length = a.size(axis) - begin - std::max<std::int64_t>(0, -after);
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

Tensor windows_of(const Tensor& a, std::int64_t axis, const Windows& w, const char* who) {
  const std::int64_t n = a.size(axis), count = w.count(n);
  const Shape& shape = a.shape();
  if (apart(w)) {
    const Tensor whole = framed(a, axis, 0, count * w.stride - n, zero_of(a), who);
    return cut(reshape(whole, with(shape, axis, 1, {count, w.stride})), axis + 1, 0, w.kernel, who);
  }
  const auto [length, repeats] = rows_of(w, n, count);
  Tensor x = expand(reshape(a, with(shape, axis, 1, {1, n})), with(shape, axis, 1, {repeats, n}));
  x = cut(reshape(x, with(shape, axis, 1, {repeats * n})), axis, 0, w.kernel * length, who);
  x = reshape(x, with(shape, axis, 1, {w.kernel, length}));
  x = cut(x, axis + 1, 0, count * w.stride, who);
  x = reshape(x, with(shape, axis, 1, {w.kernel, count, w.stride}));
  x = reshape(cut(x, axis + 2, 0, 1, who), with(shape, axis, 1, {w.kernel, count}));
  return transpose(x, axis, axis + 1);
}

Tensor folded(const Tensor& a, std::int64_t axis, const Windows& w, const char* who) {
  const std::int64_t count = a.size(axis), n = w.extent(count);
  const Shape& shape = a.shape();
  const Scalar zero = zero_of(a);
  if (apart(w)) {
    Tensor x = framed(a, axis + 1, 0, w.stride - w.kernel, zero, who);
    x = reshape(x, with(shape, axis, 2, {count * w.stride}));
    return framed(x, axis, 0, n - count * w.stride, zero, who);
  }
  const auto [length, repeats] = rows_of(w, n, count);
  Tensor x = reshape(transpose(a, axis, axis + 1), with(shape, axis, 2, {w.kernel, count, 1}));
  x = reshape(framed(x, axis + 2, 0, w.stride - 1, zero, who),
              with(shape, axis, 2, {w.kernel, count * w.stride}));
  x = framed(x, axis + 1, 0, length - count * w.stride, zero, who);
  x = reshape(x, with(shape, axis, 2, {w.kernel * length}));
  x = framed(x, axis, 0, repeats * n - w.kernel * length, zero, who);
  return reduce(Op::ReduceSum, reshape(x, with(shape, axis, 2, {repeats, n})), {axis}, false, who);
}

} // namespace egret::detail
