// Layers without parameters of their own: dropout in its forms, norms over the last axes.
#include "support/fail.h"
#include "tensor/ops.h"

#include <cmath>
#include <limits>

namespace egret {

using namespace detail;

namespace {

// The last axes, as many as weight has, whose dims must be weight's.
std::vector<std::int64_t> normed_axes(const Tensor& a, const Tensor& weight, const char* who) {
  Access::held(a, who);
  Access::held(weight, who);
  const auto rank = static_cast<std::size_t>(a.rank()),
             tail = static_cast<std::size_t>(weight.rank());
  bool fits = tail >= 1 && tail <= rank;
  for (std::size_t i = 0; fits && i < tail; ++i)
    fits = a.shape()[rank - tail + i] == weight.shape()[i];
  if (!fits)
    fail(ErrorKind::Shape, "{}: weight {} does not fit {}; it must equal its last dims", who,
         shape_of(weight), shape_of(a));
  std::vector<std::int64_t> axes;
  for (std::size_t i = rank - tail; i < rank; ++i)
    axes.push_back(static_cast<std::int64_t>(i));
  return axes;
}

// [batch, channels, 1, ...]
Shape channels_of(const Tensor& x, const char* who) {
  if (x.rank() < 2)
    fail(ErrorKind::Shape, "{}: got {}; it must be [batch, channels, ...]", who, shape_of(x));
  Shape one(x.shape().size(), Expr(1));
  one[0] = x.shape()[0];
  one[1] = x.shape()[1];
  return one;
}

} // namespace

Tensor dropout(const Operand& a, double p, Generator& generator, bool training) {
  Access::held(a, "dropout");
  if (!(p >= 0 && p <= 1))
    fail(ErrorKind::Value, "dropout: p is {}; a probability lies between 0 and 1", p);
  const Tensor x = as_float(a, "dropout");
  if (!training || p == 0)
    return x.clone();
  if (p == 1)
    return zeros_like(x);
  return where(bernoulli(x.shape(), 1 - p, generator), x * (1 / (1 - p)), 0);
}

Tensor feature_dropout(const Operand& a, double p, Generator& generator, bool training) {
  const Tensor x = as_float(a, "feature_dropout");
  return x * dropout(ones(channels_of(x, "feature_dropout"), x.dtype()), p, generator, training);
}

namespace {

// `box`: what is kept or dropped as one has size 1 along an axis.
Tensor dropped_alpha(const Tensor& x, const Shape& box, double p, Generator& generator,
                     bool training, const char* who) {
  if (!(p >= 0 && p < 1))
    fail(ErrorKind::Value, "{}: p is {}; it is at least 0 and less than 1", who, p);
  if (!training || p == 0)
    return x.clone();
  // What is dropped takes selu's lowest value; the line after it restores mean 0 and variance 1.
  constexpr double lowest = -1.7580993408473766;
  const double factor = 1 / std::sqrt((1 - p) * (1 + p * lowest * lowest));
  return where(bernoulli(box, 1 - p, generator), x, lowest) * factor - factor * lowest * p;
}

} // namespace

Tensor alpha_dropout(const Operand& a, double p, Generator& generator, bool training) {
  const Tensor x = as_float(a, "alpha_dropout");
  return dropped_alpha(x, x.shape(), p, generator, training, "alpha_dropout");
}

Tensor feature_alpha_dropout(const Operand& a, double p, Generator& generator, bool training) {
  const Tensor x = as_float(a, "feature_alpha_dropout");
  return dropped_alpha(x, channels_of(x, "feature_alpha_dropout"), p, generator, training,
                       "feature_alpha_dropout");
}

Tensor rrelu(const Operand& a, Generator& generator, double low, double high, bool training) {
  const Tensor x = as_float(a, "rrelu");
  if (!(low <= high) || !std::isfinite(high - low))
    fail(ErrorKind::Value, "rrelu: slopes from {} to {}; the range is finite and not backwards",
         low, high);
  if (!training)
    return leaky_relu(x, (low + high) / 2);
  const DType wide = accumulator_of(x.dtype());
  return where(x >= 0, x, x * uniform(x.shape(), low, high, generator, wide).to(x.dtype()));
}

Tensor gumbel_softmax(const Operand& logits, Generator& generator, double tau, bool hard,
                      std::int64_t axis) {
  const Tensor x = as_float(logits, "gumbel_softmax");
  if (!(tau > 0))
    fail(ErrorKind::Value, "gumbel_softmax: tau is {}; it must be positive", tau);
  axis = axis_of(axis, x.rank(), x.shape(), "gumbel_softmax");
  const Tensor noise = gumbel(x.shape(), generator, accumulator_of(x.dtype()));
  const Tensor soft = softmax((widened(x) + noise) * (1 / tau), axis).to(x.dtype());
  if (!hard)
    return soft;
  const Tensor best = argmax(soft, axis, true);
  Shape line(x.shape().size(), Expr(1));
  line[static_cast<std::size_t>(axis)] = x.shape()[static_cast<std::size_t>(axis)];
  const Tensor places = reshape(iota(line[static_cast<std::size_t>(axis)], DType::I64), line);
  const Tensor chosen = (best == places).to(x.dtype());
  // The value is the choice, the gradient that of the softmax.
  return chosen + (soft - unary(Op::StopGradient, soft, "gumbel_softmax"));
}

Tensor layer_norm(const Operand& a, const Operand& weight, const Operand& bias, double eps) {
  const auto axes = normed_axes(a, weight, "layer_norm");
  require_float(a, "layer_norm");
  if (bias.defined() && bias.shape() != weight.shape())
    fail(ErrorKind::Shape, "layer_norm: bias {} does not fit weight {}; they must be equal",
         shape_of(bias), shape_of(weight));
  const Tensor x = widened(a);
  const Tensor centred = x - mean(x, axes, true);
  const Tensor variance = mean(square(centred), axes, true);
  Tensor result = centred * rsqrt(variance + eps) * weight.to(x.dtype());
  if (bias.defined())
    result = result + bias.to(x.dtype());
  return rounded_to(result, a.dtype());
}

Tensor rms_norm(const Operand& a, const Operand& weight, double eps) {
  const auto axes = normed_axes(a, weight, "rms_norm");
  require_float(a, "rms_norm");
  const Tensor x = widened(a);
  const Tensor scale = rsqrt(mean(square(x), axes, true) + eps);
  return rounded_to(x * scale * weight.to(x.dtype()), a.dtype());
}

} // namespace egret
