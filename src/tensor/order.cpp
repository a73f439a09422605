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

Sorted nanmedian(const Operand& a, std::int64_t axis, bool keepdim) {
  constexpr const char* who = "nanmedian";
  const std::int64_t n = length_of(a, axis, who);
  if (!is_float(a.dtype()) || a.rank() == 0)
    return element(a, (n - 1) / 2, axis, keepdim, who);
  const Order order = order_of(a, axis, false, who);
  // NaN stand behind all others.
  const Tensor count = sum(logical_not(isnan(a)), order.axis, true);
  const Tensor middle = floor_divide(maximum(count - 1, 0), 2);
  Sorted s = picked(a, gather(order.indices, order.axis, middle), order.axis);
  if (!keepdim)
    s = {squeeze(s.values, order.axis), squeeze(s.indices, order.axis)};
  return s;
}

Tensor nanmedian(const Operand& a) {
  Access::held(a, "nanmedian");
  return nanmedian(a.flatten(), 0).values;
}

namespace {

// Where a quantile lies in a sorted line: between two elements, `part` of the way.
struct Between {
  Tensor low, high, part; ///< i64, i64, f64
};

// Of positions in f64.
Between between_elements(const Tensor& at, QuantileBetween how) {
  switch (how) {
  case QuantileBetween::Lower:
    return {floor(at).to(DType::I64), {}, {}};
  case QuantileBetween::Higher:
    return {ceil(at).to(DType::I64), {}, {}};
  case QuantileBetween::Nearest:
    return {round(at).to(DType::I64), {}, {}};
  default:
    break;
  }
  // Whole positions are one element: an infinite neighbour does not count.
  const Tensor low = floor(at), high = ceil(at);
  const Tensor part = how == QuantileBetween::Midpoint ? (high - low) * 0.5 : at - low;
  return {low.to(DType::I64), high.to(DType::I64), part};
}

void check_quantiles(std::span<const double> q, const char* who) {
  for (const double x : q)
    if (!(x >= 0 && x <= 1))
      fail(ErrorKind::Value, "{}: q is {}; it lies between 0 and 1", who, x);
}

// The quantiles along a last axis. `counted`: of what is no NaN.
Tensor quantiles(const Tensor& a, std::span<const double> q, std::int64_t axis, bool counted,
                 QuantileBetween how, const char* who) {
  const std::int64_t n = length_of(a, axis, who);
  check_quantiles(q, who);
  const Tensor x = as_float(a, who);
  const auto wanted = static_cast<std::int64_t>(q.size());
  if (x.rank() == 0)
    return expand(unsqueeze(x, 0), {wanted});
  axis = axis_of(axis, x.rank(), x.shape(), who);
  const Tensor ordered = movedim(widened(sort(x, axis).values), axis, -1);
  const Tensor none = movedim(isnan(x), axis, -1);
  const std::int64_t last = x.rank() - 1;
  const std::vector<double> given(q.begin(), q.end());
  Shape row(x.shape().size(), Expr(1));
  row.back() = wanted;
  const Tensor parts = reshape(tensor(given), row);
  Tensor at;
  if (counted)
    at = parts * maximum(sum(logical_not(none), -1, true) - 1, 0).to(DType::F64);
  else
    at = parts * static_cast<double>(n - 1);
  const Between place = between_elements(at, how);
  const auto element_at = [&](const Tensor& index) {
    return counted ? gather(ordered, last, index) : take(ordered, index.flatten(), last);
  };
  Tensor y = element_at(place.low);
  if (place.high.defined()) {
    const Tensor above = element_at(place.high);
    // Nothing lies between an element and itself, and what is infinite is not interpolated.
    const Tensor alone = (place.part == 0) | (isinf(y) & (isfinite(above) | (y == above)));
    const Tensor mixed = lerp(y, above, place.part.to(y.dtype()));
    y = where(alone, y, where(isinf(above), y + above, mixed));
  }
  if (!counted)
    y = where(any(none, -1, true), std::numeric_limits<double>::quiet_NaN(), y);
  return rounded_to(y, x.dtype());
}

// One quantile is no axis of its own, several are the first one.
Tensor placed(const Tensor& y, const Tensor& a, std::int64_t axis, bool several, bool keepdim,
              const char* who) {
  Tensor result = several ? movedim(y, -1, 0) : squeeze(y, -1);
  if (!keepdim || a.rank() == 0)
    return result;
  return unsqueeze(result, axis_of(axis, a.rank(), a.shape(), who) + (several ? 1 : 0));
}

} // namespace

#define EGRET_QUANTILE(name, counted)                                                              \
  Tensor name(const Operand& a, double q, std::int64_t axis, bool keepdim,                         \
              QuantileBetween between) {                                                           \
    const Tensor y = quantiles(a, std::span(&q, 1), axis, counted, between, #name);                \
    return placed(y, a, axis, false, keepdim, #name);                                              \
  }                                                                                                \
  Tensor name(const Operand& a, std::span<const double> q, std::int64_t axis, bool keepdim,        \
              QuantileBetween between) {                                                           \
    const Tensor y = quantiles(a, q, axis, counted, between, #name);                               \
    return placed(y, a, axis, true, keepdim, #name);                                               \
  }                                                                                                \
  Tensor name(const Operand& a, std::initializer_list<double> q, std::int64_t axis, bool keepdim,  \
              QuantileBetween between) {                                                           \
    return name(a, std::span(q.begin(), q.size()), axis, keepdim, between);                        \
  }
EGRET_QUANTILE(quantile, false)
EGRET_QUANTILE(nanquantile, true)
#undef EGRET_QUANTILE

Tensor searchsorted(const Operand& line, const Operand& values, bool right, const Operand& sorter) {
  constexpr const char* who = "searchsorted";
  if (sorter.defined()) {
    Access::held(line, who);
    require_integer(sorter, who, "the sorter");
    if (line.rank() < 1 || sorter.shape() != line.shape())
      fail(ErrorKind::Shape, "{}: sorter {} does not fit {}; shapes must be equal", who,
           shape_of(sorter), shape_of(line));
    return searchsorted(gather(line, -1, sorter), values, right);
  }
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
