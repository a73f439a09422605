// Slices along an axis that fall into segments, by an index: combined, and their softmax.
#include "egret/functional/indices.h"
#include "egret/functional/reductions.h"

#include "support/fail.h"
#include "tensor/ops.h"

namespace egret {

using namespace detail;

namespace {

std::int64_t checked(const Tensor& a, const Tensor& index, std::int64_t segments, std::int64_t axis,
                     const char* who) {
  Access::held(a, who);
  Access::held(index, who);
  axis = axis_of(axis, a.rank(), a.shape(), who);
  require_integer(index, who, "the indices");
  const Expr& n = a.shape()[static_cast<std::size_t>(axis)];
  if (index.shape() != Shape{n})
    fail(ErrorKind::Shape, "{}: index {} does not fit axis {} of {}; it must be [{}]", who,
         shape_of(index), axis, shape_of(a), n.str());
  if (segments < 0)
    fail(ErrorKind::Value, "{}: {} segments; the number must not be negative", who, segments);
  return axis;
}

Tensor reduced(const Tensor& a, const Tensor& index, std::int64_t segments, std::int64_t axis,
               Scatter how, const char* who) {
  Shape shape = a.shape();
  shape[static_cast<std::size_t>(axis)] = segments;
  return named(who, [&] {
    return index_reduce(zeros(shape, a.dtype()), axis, index, a, how, how == Scatter::Add);
  });
}

// Logarithms of sums of exp in two parts, which are added: the largest elements, without a gradient
// and 0 where they are infinite, and the logarithms of the sums of what lies below them.
struct LogSums {
  Tensor x;    ///< the operand, wide
  Tensor top;  ///< [.., segments, ..]
  Tensor low;  ///< x less the top of its segment
  Tensor sums; ///< [.., segments, ..]
};

LogSums log_sums(const Tensor& a, const Tensor& index, std::int64_t segments, std::int64_t axis,
                 const char* who) {
  const Tensor x = widened(as_float(a, who));
  const Tensor most = stopped(reduced(x, index, segments, axis, Scatter::Max, who));
  const Tensor top = where(isinf(most), 0, most);
  const Tensor low = x - take(top, index, axis);
  return {x, top, low, reduced(exp(low), index, segments, axis, Scatter::Add, who)};
}

// Which slices belong to a segment, broadcast along the axis.
Tensor members(const Tensor& a, const Tensor& index, std::int64_t segments, std::int64_t axis) {
  Shape along(a.shape().size(), Expr(1));
  along[static_cast<std::size_t>(axis)] = index.shape()[0];
  const Tensor number = index.to(DType::I64);
  return reshape((number >= 0) & (number < segments), along);
}

} // namespace

Tensor segment_reduce(const Operand& a, const Operand& index, std::int64_t segments, Scatter how,
                      std::int64_t axis) {
  constexpr const char* who = "segment_reduce";
  axis = checked(a, index, segments, axis, who);
  return reduced(a, index, segments, axis, how, who);
}

Tensor segment_logsumexp(const Operand& a, const Operand& index, std::int64_t segments,
                         std::int64_t axis) {
  constexpr const char* who = "segment_logsumexp";
  axis = checked(a, index, segments, axis, who);
  const LogSums s = log_sums(a, index, segments, axis, who);
  // The gradient of the logarithm of an empty segment is that of 1.
  const Tensor value = where(s.sums == 0, -kInfinity, log(where(s.sums == 0, 1, s.sums)) + s.top);
  return rounded_to(value, as_float(a, who).dtype());
}

Tensor segment_softmax(const Operand& a, const Operand& index, std::int64_t segments,
                       std::int64_t axis) {
  constexpr const char* who = "segment_softmax";
  axis = checked(a, index, segments, axis, who);
  const Tensor member = members(a, index, segments, axis);
  const LogSums s = log_sums(where(member, as_float(a, who), 0), index, segments, axis, who);
  const Tensor total = take(s.sums, index, axis);
  const Tensor share = exp(s.low) / where(member, total, 1);
  return rounded_to(where(member, share, 0), as_float(a, who).dtype());
}

Tensor segment_log_softmax(const Operand& a, const Operand& index, std::int64_t segments,
                           std::int64_t axis) {
  constexpr const char* who = "segment_log_softmax";
  axis = checked(a, index, segments, axis, who);
  const Tensor member = members(a, index, segments, axis);
  const LogSums s = log_sums(where(member, as_float(a, who), 0), index, segments, axis, who);
  const Tensor total = take(s.sums, index, axis);
  const Tensor value = s.low - log(where(member, total, 1));
  return rounded_to(where(member, value, -kInfinity), as_float(a, who).dtype());
}

} // namespace egret
