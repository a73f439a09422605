// Sorting by order-preserving integer keys.
#include "egret/functional/order.h"

#include "support/fail.h"
#include "tensor/windows.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace egret {

using namespace detail;

namespace {

// Unsigned integers in the order of the values: NaN largest, -0 as 0, the other way round for a
// descending sort, so that equal elements keep their order there too.
Tensor keys_of(const Tensor& a, bool descending) {
  Tensor key;
  const DType bits = bits_of(a.dtype());
  if (is_float(a.dtype())) {
    const Tensor raw = where(a == 0, 0, a).bitcast(bits), top = top_bit(a.dtype());
    const Tensor ordered = where((raw & top) == 0, raw | top, bitwise_not(raw));
    // A NaN may have either sign.
    key = where(isnan(a), constant(Scalar::of(bits, std::int64_t{-1})), ordered);
  } else if (a.dtype() == DType::Bool) {
    key = a.to(bits);
  } else {
    key = is_signed(a.dtype()) ? a.bitcast(bits) ^ top_bit(a.dtype()) : a;
  }
  return descending ? bitwise_not(key) : key;
}

// Positions along the axis in order, all or the `first` of them, and the axis counted from the
// front.
struct Order {
  Tensor indices;
  std::int64_t axis;
};
Order order_of(const Tensor& a, std::int64_t axis, bool descending, const char* who,
               std::int64_t first = -1) {
  Access::held(a, who);
  if (a.rank() == 0)
    return {zeros({}, DType::I64), 0};
  axis = axis_of(axis, a.rank(), a.shape(), who);
  Shape shape(a.shape().begin(), a.shape().end());
  if (first >= 0)
    shape[static_cast<std::size_t>(axis)] = Expr(first);
  const Tensor keys = keys_of(a.detach(), descending);
  return {apply(Op::ArgSort, {&keys}, {.shape = shape, .axes = {axis}}, who), axis};
}

Sorted picked(const Tensor& a, const Tensor& indices, std::int64_t axis) {
  return {a.rank() == 0 ? a.clone() : gather(a, axis, indices), indices};
}

// Element `at` of a sorted line.
Sorted element(const Tensor& a, std::int64_t at, std::int64_t axis, bool keepdim, const char* who) {
  const Order order = order_of(a, axis, false, who, a.rank() == 0 ? -1 : at + 1);
  if (a.rank() == 0)
    return picked(a, order.indices, 0);
  Sorted s = picked(a, cut(order.indices, order.axis, at, 1, who), order.axis);
  if (!keepdim)
    s = {squeeze(s.values, order.axis), squeeze(s.indices, order.axis)};
  return s;
}

std::int64_t length_of(const Tensor& a, std::int64_t axis, const char* who) {
  Access::held(a, who);
  if (a.rank() == 0)
    return 1;
  const std::int64_t n = a.size(axis_of(axis, a.rank(), a.shape(), who));
  if (n == 0)
    fail(ErrorKind::Shape, "{}: axis {} of {} is empty; at least one element is needed", who, axis,
         shape_of(a));
  return n;
}

} // namespace

Sorted sort(const Operand& a, std::int64_t axis, bool descending) {
  const Order order = order_of(a, axis, descending, "sort");
  return picked(a, order.indices, order.axis);
}

Tensor argsort(const Operand& a, std::int64_t axis, bool descending) {
  return order_of(a, axis, descending, "argsort").indices;
}

Sorted topk(const Operand& a, std::int64_t k, std::int64_t axis, bool largest) {
  Access::held(a, "topk");
  const std::int64_t n = a.rank() == 0 ? 1 : a.size(axis_of(axis, a.rank(), a.shape(), "topk"));
  if (k < 0 || k > n)
    fail(ErrorKind::Value, "topk: {} elements of axis {} of {}; it has {}", k, axis, shape_of(a),
         n);
  const Order order = order_of(a, axis, largest, "topk", a.rank() == 0 ? -1 : k);
  return picked(a, order.indices, order.axis);
}

Sorted kthvalue(const Operand& a, std::int64_t k, std::int64_t axis, bool keepdim) {
  const std::int64_t n = length_of(a, axis, "kthvalue");
  if (k < 1 || k > n)
    fail(ErrorKind::Value, "kthvalue: k is {}; it lies between 1 and {}", k, n);
  return element(a, k - 1, axis, keepdim, "kthvalue");
}

Sorted median(const Operand& a, std::int64_t axis, bool keepdim) {
  const std::int64_t n = length_of(a, axis, "median");
  if (!is_float(a.dtype()) || a.rank() == 0)
    return element(a, (n - 1) / 2, axis, keepdim, "median");
  const Order order = order_of(a, axis, false, "median", (n - 1) / 2 + 1);
  const Tensor middle = cut(order.indices, order.axis, (n - 1) / 2, 1, "median");
  // The first NaN, where there is one.
  const Tensor none = any(isnan(a), order.axis, true);
  const Tensor first = argmax(isnan(a), order.axis, true);
  Sorted s = picked(a, where(none, first, middle), order.axis);
  if (!keepdim)
    s = {squeeze(s.values, order.axis), squeeze(s.indices, order.axis)};
  return s;
}

Tensor median(const Operand& a) {
  Access::held(a, "median");
  return median(a.flatten(), 0).values;
}

Sorted mode(const Operand& a, std::int64_t axis, bool keepdim) {
  const std::int64_t n = length_of(a, axis, "mode");
  if (a.rank() == 0)
    return picked(a, zeros({}, DType::I64), 0);
  axis = axis_of(axis, a.rank(), a.shape(), "mode");
  const Sorted s = sort(a, axis);
  const Tensor line = movedim(s.values.detach(), axis, -1);
  // The first of the largest distances from the beginning of its run: the end of the first of the
  // longest runs, which is the last position of the value in the operand.
  const Tensor number = arange(n, DType::I32), before = roll(line, {1}, {-1});
  const Tensor same = (line == before) | (isnan(line) & isnan(before));
  const Tensor begin = cummax(where(same & (number > 0), 0, number), -1).values;
  const Tensor at = movedim(argmax(number - begin, -1, true), -1, axis);
  Sorted result = picked(a, gather(s.indices, axis, at), axis);
  if (!keepdim)
    result = {squeeze(result.values, axis), squeeze(result.indices, axis)};
  return result;
}

Tensor quantile(const Operand& a, double q, std::int64_t axis, bool keepdim) {
  const std::int64_t n = length_of(a, axis, "quantile");
  if (!(q >= 0 && q <= 1))
    fail(ErrorKind::Value, "quantile: q is {}; it lies between 0 and 1", q);
  const Tensor x = as_float(a, "quantile");
  if (x.rank() == 0)
    return x.clone();
  axis = axis_of(axis, x.rank(), x.shape(), "quantile");
  const Tensor ordered = widened(sort(x, axis).values);
  const double at = q * static_cast<double>(n - 1);
  const auto low = static_cast<std::int64_t>(std::floor(at));
  const Tensor below = cut(ordered, axis, low, 1, "quantile");
  const Tensor above = cut(ordered, axis, std::min(low + 1, n - 1), 1, "quantile");
  Tensor y = lerp(below, above, at - static_cast<double>(low));
  y = where(any(isnan(x), axis, true), std::numeric_limits<double>::quiet_NaN(), y);
  return rounded_to(keepdim ? y : squeeze(y, axis), x.dtype());
}

Tensor searchsorted(const Operand& line, const Operand& values, bool right) {
  constexpr const char* who = "searchsorted";
  const Pair operands = promoted(line, values, who);
  const Tensor &sorted = operands.a, &wanted = operands.b;
  if (sorted.rank() < 1)
    fail(ErrorKind::Shape, "{}: the sorted line is a single number; it must have an axis", who);
  const bool vector = sorted.rank() == 1;
  const bool fits = vector || (sorted.rank() == wanted.rank() &&
                               std::equal(sorted.shape().begin(), sorted.shape().end() - 1,
                                          wanted.shape().begin()));
  if (!fits)
    fail(ErrorKind::Shape,
         "{}: {} and values {}: a vector is needed, or equal dims but for the last", who,
         shape_of(line), shape_of(values));
  const std::int64_t n = sorted.size(-1);
  auto at = [&](const Tensor& index) {
    return vector ? take(sorted, index, 0) : gather(sorted, sorted.rank() - 1, index);
  };
  std::int64_t step = 1;
  while (step * 2 <= n)
    step *= 2;
  // `low` elements are known to stand before the value; steps of halves are tried.
  Tensor low =
      detail::broadcast_to(constant(Scalar::of(DType::I64, std::int64_t{0})), wanted.shape(), who);
  for (; n > 0 && step > 0; step /= 2) {
    const Tensor next = low + step;
    const Tensor there = at(minimum(next, n) - 1);
    // A NaN among the values stands behind all numbers.
    const Tensor behind = right ? there > wanted : there >= wanted;
    low = where((next <= n) & logical_not(behind), next, low);
  }
  return low;
}

Tensor bucketize(const Operand& values, const Operand& boundaries, bool right) {
  Access::held(boundaries, "bucketize");
  if (boundaries.rank() != 1)
    fail(ErrorKind::Shape, "bucketize: boundaries {}; a vector is needed", shape_of(boundaries));
  return searchsorted(boundaries, values, right);
}

} // namespace egret
