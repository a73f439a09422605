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
    const Tensor none = constant(Scalar::of(a.dtype(), std::int64_t{0}));
    return index_reduce(detail::broadcast_to(none, shape, who), axis, index, a, how,
                        how == Scatter::Add);
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

// Each element less the largest one of its segment, and the sum of exp of these; of what belongs to
// no segment 0 and 1.
struct Shares {
  Tensor member; ///< broadcasts to the operand
  Tensor low, total;
};

Shares shares(const Tensor& a, const Tensor& index, std::int64_t segments, std::int64_t axis,
              const char* who) {
  Shape along(a.shape().size(), Expr(1));
  along[static_cast<std::size_t>(axis)] = index.shape()[0];
  const Tensor number = index.to(DType::I64);
  const Tensor member = reshape((number >= 0) & (number < segments), along);
  const LogSums s = log_sums(where(member, as_float(a, who), 0), index, segments, axis, who);
  return {member, s.low, where(member, take(s.sums, index, axis), 1)};
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
  const Shares s = shares(a, index, segments, axis, who);
  return rounded_to(where(s.member, exp(s.low) / s.total, 0), as_float(a, who).dtype());
}

Tensor segment_log_softmax(const Operand& a, const Operand& index, std::int64_t segments,
                           std::int64_t axis) {
  constexpr const char* who = "segment_log_softmax";
  axis = checked(a, index, segments, axis, who);
  const Shares s = shares(a, index, segments, axis, who);
  return rounded_to(where(s.member, s.low - log(s.total), -kInfinity), as_float(a, who).dtype());
}

} // namespace egret
