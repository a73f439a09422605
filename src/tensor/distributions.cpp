// Random numbers of other distributions, and random choices, from uniform ones.
#include "egret/functional/order.h"
#include "egret/random.h"

#include "support/fail.h"
#include "tensor/ops.h"

#include <cmath>
#include <limits>

namespace egret {

using namespace detail;

namespace {

// Uniform in (0, 1]: a logarithm of it is finite.
Tensor positive(const Shape& shape, Generator& generator, DType type) {
  return 1 - rand(shape, generator, type);
}

double normal_below(double x) {
  return 0.5 * std::erfc(-x * M_SQRT1_2);
}

void require_weights(const Tensor& weights, const char* who) {
  Access::held(weights, who);
  require_float(weights, who);
  if (weights.rank() < 1)
    fail(ErrorKind::Shape, "{}: weights are a single number; the last axis is chosen from", who);
}

} // namespace

Tensor bernoulli(const Operand& probabilities, Generator& generator) {
  Access::held(probabilities, "bernoulli");
  require_float(probabilities, "bernoulli");
  const DType wide = accumulator_of(probabilities.dtype());
  return rand(probabilities.shape(), generator, wide) < probabilities.detach().to(wide);
}

Tensor exponential(const Shape& shape, double rate, Generator& generator, DType dtype) {
  if (!(rate > 0) || !std::isfinite(rate))
    fail(ErrorKind::Value, "exponential: a rate of {}; it must be positive", rate);
  const DType wide = accumulator_of(dtype);
  return (log(positive(shape, generator, wide)) * (-1 / rate)).to(dtype);
}

Tensor gumbel(const Shape& shape, Generator& generator, DType dtype) {
  const DType wide = accumulator_of(dtype);
  // Half a step away from both ends, so that neither logarithm is infinite.
  const double half = wide == DType::F64 ? 0x1p-54 : 0x1p-25;
  const Tensor u = maximum(rand(shape, generator, wide), half);
  return neg(log(neg(log(u)))).to(dtype);
}

Tensor truncated_normal(const Shape& shape, double mean, double deviation, double low, double high,
                        Generator& generator, DType dtype) {
  if (!(deviation > 0) || !std::isfinite(mean) || !std::isfinite(deviation))
    fail(ErrorKind::Value,
         "truncated_normal: mean {} and deviation {}; both must be finite, the latter positive",
         mean, deviation);
  if (!(low < high))
    fail(ErrorKind::Value, "truncated_normal: [{}, {}] is no range", low, high);
  const DType wide = accumulator_of(dtype);
  const double a = normal_below((low - mean) / deviation),
               b = normal_below((high - mean) / deviation);
  const Tensor y = uniform(shape, 2 * a - 1, 2 * b - 1, generator, wide);
  const double near = wide == DType::F64 ? 1 - 0x1p-53 : 1 - 0x1p-24;
  const Tensor x = erfinv(clamp(y, -near, near)) * (deviation * M_SQRT2) + mean;
  return clamp(x, low, high).to(dtype);
}

Tensor permutation(std::int64_t n, Generator& generator) {
  if (n < 0)
    fail(ErrorKind::Value, "permutation: {} elements; the number must not be negative", n);
  const Tensor bits = generator.bits({2, n});
  return argsort((bits[0] << 32) | bits[1]);
}

Tensor multinomial(const Operand& weights, std::int64_t count, Generator& generator,
                   bool replacement) {
  require_weights(weights, "multinomial");
  const std::int64_t n = weights.size(-1);
  if (count < 1 || n < 1 || (!replacement && count > n))
    fail(ErrorKind::Value, "multinomial: {} of {} positions{}", count, n,
         replacement ? "" : " without replacement");
  const Tensor w = widened(weights.detach());
  if (!replacement) // the largest of log weights with noise: each choice as if made in turn
    return topk(log(w) + gumbel(w.shape(), generator, w.dtype()), count).indices;
  const Tensor line = cumsum(w, -1);
  Shape shape = w.shape();
  shape.back() = count;
  const Tensor total = line.narrow(-1, n - 1, 1);
  // Behind what is not more than u: positions of weight 0 are passed over.
  const Tensor u = rand(shape, generator, w.dtype()) * total;
  const Tensor at = searchsorted(line, u, true);
  // A product that rounds up to the total would lie behind the last; the last of positive weight is
  // the first at which the sum reaches the total.
  return minimum(at, searchsorted(line, total, false));
}

} // namespace egret
