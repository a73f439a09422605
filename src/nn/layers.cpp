#include "egret/nn/layers.h"

#include "support/fail.h"

#include <cmath>

namespace egret::nn {

namespace {

Tensor parameter(Tensor value) {
  return value.set_requires_grad();
}

} // namespace

Linear::Linear(std::int64_t in, std::int64_t out, Generator& generator, bool with_bias) {
  if (in <= 0 || out <= 0)
    fail(ErrorKind::Value, "Linear: sizes must be positive, not {} and {}", in, out);
  double bound = 1 / std::sqrt(static_cast<double>(in));
  weight = parameter(uniform({out, in}, -bound, bound, generator));
  if (with_bias)
    bias = parameter(uniform({out}, -bound, bound, generator));
}

Tensor Linear::operator()(const Operand& x) const {
  return linear(x, weight, bias ? *bias : Tensor());
}

Embedding::Embedding(std::int64_t count, std::int64_t width, Generator& generator, double deviation)
    : weight(parameter(normal({count, width}, 0, deviation, generator))) {}

Tensor Embedding::operator()(const Operand& index) const {
  return embedding(weight, index);
}

LayerNorm::LayerNorm(std::int64_t width, double eps)
    : weight(parameter(ones({width}))), bias(parameter(zeros({width}))), eps(eps) {}

Tensor LayerNorm::operator()(const Operand& x) const {
  return layer_norm(x, weight, bias, eps);
}

RmsNorm::RmsNorm(std::int64_t width, double eps) : weight(parameter(ones({width}))), eps(eps) {}

Tensor RmsNorm::operator()(const Operand& x) const {
  return rms_norm(x, weight, eps);
}

GroupNorm::GroupNorm(std::int64_t groups, std::int64_t channels, double eps)
    : weight(parameter(ones({channels}))), bias(parameter(zeros({channels}))), groups(groups),
      eps(eps) {
  if (groups <= 0 || channels % groups != 0)
    fail(ErrorKind::Value, "GroupNorm: {} groups do not divide {} channels", groups, channels);
}

Tensor GroupNorm::operator()(const Operand& x) const {
  return group_norm(x, groups, weight, bias, eps);
}

InstanceNorm::InstanceNorm(std::int64_t channels, bool affine, double eps) : eps(eps) {
  if (affine) {
    weight = parameter(ones({channels}));
    bias = parameter(zeros({channels}));
  }
}

Tensor InstanceNorm::operator()(const Operand& x) const {
  return instance_norm(x, weight ? *weight : Tensor(), bias ? *bias : Tensor(), eps);
}

BatchNorm::BatchNorm(std::int64_t channels, double eps, double momentum)
    : weight(parameter(ones({channels}))), bias(parameter(zeros({channels}))),
      running_mean(zeros({channels})), running_var(ones({channels})),
      num_batches_tracked(scalar(std::int64_t{0})), eps(eps), momentum(momentum) {}

Tensor BatchNorm::operator()(const Operand& x, Generator* generator) const {
  const bool training = generator != nullptr;
  if (training) {
    Tensor count = num_batches_tracked; // a handle to the same place
    count += 1;
  }
  return batch_norm(x, running_mean, running_var, weight, bias,
                    {.training = training, .momentum = momentum, .eps = eps});
}

Tensor Dropout::operator()(const Operand& x, Generator* generator) const {
  return generator != nullptr && p > 0 ? dropout(x, p, *generator) : Tensor(x);
}

Tensor activate(Activation activation, const Operand& x) {
  switch (activation) {
  case Activation::Relu:
    return relu(x);
  case Activation::Gelu:
    return gelu(x, egret::Gelu::Erf);
  case Activation::GeluTanh:
    return gelu(x, egret::Gelu::Tanh);
  case Activation::Silu:
    return silu(x);
  case Activation::Tanh:
    return tanh(x);
  }
  fail(ErrorKind::Value, "no such activation: {}", static_cast<int>(activation));
}

Mlp::Mlp(const std::vector<std::int64_t>& widths, Generator& generator, Activation activation)
    : activation(activation) {
  if (widths.size() < 2)
    fail(ErrorKind::Value, "Mlp: needs at least the widths of input and output, got {}",
         widths.size());
  for (std::size_t i = 0; i + 1 < widths.size(); ++i)
    layers.emplace_back(widths[i], widths[i + 1], generator);
}

Tensor Mlp::operator()(const Operand& x) const {
  Tensor y = x;
  for (std::size_t i = 0; i < layers.size(); ++i)
    y = i + 1 < layers.size() ? activate(activation, layers[i](y)) : layers[i](y);
  return y;
}

} // namespace egret::nn
