// Norms over channels and batches.
#include "support/fail.h"
#include "tensor/ops.h"
#include "tensor/windows.h"

#include <limits>

namespace egret {

using namespace detail;

namespace {

void require_channels(const Tensor& a, std::int64_t lowest, const char* who) {
  Access::held(a, who);
  require_float(a, who);
  if (a.rank() < lowest)
    fail(ErrorKind::Shape, "{}: got {}; it must be [batch, channels, ...] with {} axes or more",
         who, shape_of(a), lowest);
}

// [channels] as [channels, 1...], so that it broadcasts against [batch, channels, ...].
Tensor by_channel(const Tensor& line, const Tensor& a, DType type, const char* what,
                  const char* who) {
  Access::held(line, who);
  if (line.shape() != Shape{a.shape()[1]})
    fail(ErrorKind::Shape, "{}: {} {} does not fit {}; it must be [{}]", who, what, shape_of(line),
         shape_of(a), a.shape()[1].str());
  Shape shape(a.shape().size() - 1, Expr(1));
  shape[0] = a.shape()[1];
  return reshape(line.to(type), shape);
}

Tensor scaled(Tensor x, const Tensor& weight, const Tensor& bias, const Tensor& a,
              const char* who) {
  if (weight.defined())
    x = x * by_channel(weight, a, x.dtype(), "weight", who);
  if (bias.defined())
    x = x + by_channel(bias, a, x.dtype(), "bias", who);
  return rounded_to(x, a.dtype());
}

// Normalized over `axes`.
Tensor normed(const Tensor& x, const std::vector<std::int64_t>& axes, double eps) {
  const Tensor centred = x - mean(x, axes, true);
  return centred * rsqrt(mean(square(centred), axes, true) + eps);
}

} // namespace

Tensor group_norm(const Operand& a, std::int64_t groups, const Operand& weight, const Operand& bias,
                  double eps) {
  require_channels(a, 2, "group_norm");
  const std::int64_t channels = a.size(1);
  if (groups < 1 || channels % groups != 0)
    fail(ErrorKind::Value, "group_norm: {} channels do not fall into {} groups of equal size",
         channels, groups);
  Shape split = {a.shape()[0], Expr(groups), Expr(channels / groups)};
  split.insert(split.end(), a.shape().begin() + 2, a.shape().end());
  std::vector<std::int64_t> axes;
  for (std::size_t i = 2; i < split.size(); ++i)
    axes.push_back(static_cast<std::int64_t>(i));
  const Tensor x = reshape(normed(reshape(widened(a), split), axes, eps), a.shape());
  return scaled(x, weight, bias, a, "group_norm");
}

Tensor instance_norm(const Operand& a, const Operand& weight, const Operand& bias, double eps) {
  require_channels(a, 3, "instance_norm");
  std::vector<std::int64_t> axes;
  for (std::int64_t i = 2; i < a.rank(); ++i)
    axes.push_back(i);
  return scaled(normed(widened(a), axes, eps), weight, bias, a, "instance_norm");
}

Tensor batch_norm(const Operand& a, Tensor running_mean, Tensor running_var, const Operand& weight,
                  const Operand& bias, const BatchNormOptions& options) {
  constexpr const char* who = "batch_norm";
  require_channels(a, 2, who);
  if (running_mean.defined() != running_var.defined())
    fail(ErrorKind::Value, "{}: one running statistic without the other; give both or none", who);
  const bool running = running_mean.defined();
  const Tensor x = widened(a);
  std::vector<std::int64_t> axes = {0};
  for (std::int64_t i = 2; i < a.rank(); ++i)
    axes.push_back(i);
  Tensor centre, variance;
  if (running) {
    centre = by_channel(running_mean, a, x.dtype(), "running mean", who);
    variance = by_channel(running_var, a, x.dtype(), "running variance", who);
  }
  if (!running || options.training) {
    const Expr count = count_along(a.shape(), axes);
    if (options.training && count == Expr(1))
      fail(ErrorKind::Shape, "{}: {} has one value a channel, which has no variance to train with",
           who, shape_of(a));
    centre = mean(x, axes, true);
    variance = mean(square(x - centre), axes, true);
    if (running) {
      const double m = options.momentum;
      const DType type = running_var.dtype();
      const Tensor larger = number_of(count, type) / number_of(count - 1, type);
      const Tensor batch_mean = reshape(centre.detach(), running_mean.shape());
      const Tensor batch_var = reshape(variance.detach(), running_var.shape()) * larger;
      running_mean.assign(running_mean.detach() * (1 - m) + batch_mean * m);
      running_var.assign(running_var.detach() * (1 - m) + batch_var * m);
    }
  }
  return scaled((x - centre) * rsqrt(variance + options.eps), weight, bias, a, who);
}

Tensor normalize(const Operand& a, double p, std::int64_t axis, double eps) {
  const Tensor x = as_float(a, "normalize");
  const Tensor wide = widened(x);
  return rounded_to(wide / maximum(norm(wide, axis, true, p), eps), x.dtype());
}

Tensor local_response_norm(const Operand& a, std::int64_t size, double alpha, double beta,
                           double k) {
  constexpr const char* who = "local_response_norm";
  const Tensor given = as_float(a, who);
  if (given.rank() < 3)
    fail(ErrorKind::Shape, "{}: got {}; it must be [batch, channels, spatial...]", who,
         shape_of(a));
  if (size < 1)
    fail(ErrorKind::Value, "{}: {} neighbouring channels; at least 1 is needed", who, size);
  const Tensor x = widened(given);
  const WindowedAxis line{{size}, size / 2, (size - 1) / 2};
  const Scalar zero = Scalar::of(x.dtype(), std::int64_t{0});
  const Tensor power = mean(windows_of(square(x), 1, {line}, zero, who), 2);
  return rounded_to(x / pow(power * alpha + k, beta), given.dtype());
}

Tensor renorm(const Operand& a, double p, std::int64_t axis, double most) {
  constexpr const char* who = "renorm";
  const Tensor given = as_float(a, who);
  axis = axis_of(axis, given.rank(), given.shape(), who);
  if (!(p > 0) || !(most >= 0))
    fail(ErrorKind::Value,
         "{}: p is {} and the largest norm {}; p is positive, the norm not "
         "negative",
         who, p, most);
  const Tensor x = widened(given);
  std::vector<std::int64_t> others;
  for (std::int64_t i = 0; i < x.rank(); ++i)
    if (i != axis)
      others.push_back(i);
  const Tensor size = others.empty() ? abs(x) : norm(x, others, true, p);
  const Tensor larger = size > most;
  return rounded_to(where(larger, x * (most / (where(larger, size, 1) + 1e-7)), x), given.dtype());
}

} // namespace egret
