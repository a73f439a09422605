#include "egret/optim.h"

#include "egret/grad.h"
#include "support/fail.h"

#include <cmath>
#include <numbers>

namespace egret::optim {

namespace {

/// Optimizer state by parameter name: zeros of the parameter's shape.
std::map<std::string, Tensor> zeros_for(const std::vector<NamedTensor>& parameters) {
  std::map<std::string, Tensor> state;
  for (const auto& [name, tensor] : parameters)
    if (!state.emplace(name, zeros_like(tensor.detach())).second)
      fail(ErrorKind::Value, "optimizer: two parameters are named '{}'", name);
  return state;
}

void check_parameters(const char* who, const std::vector<NamedTensor>& parameters) {
  if (parameters.empty())
    fail(ErrorKind::Value, "{}: no parameters (do they require gradients?)", who);
}

void set_scalar(Tensor& place, double value) {
  NoGrad no_grad;
  place.assign(value);
}

} // namespace

Sgd::Sgd(std::vector<NamedTensor> parameters, const SgdOptions& options)
    : lr(scalar(options.lr, DType::F32)), parameters_(std::move(parameters)), options_(options) {
  check_parameters("Sgd", parameters_);
  if (options.momentum != 0)
    velocity = zeros_for(parameters_);
}

void Sgd::set_lr(double value) {
  set_scalar(lr, value);
}

void Sgd::step() {
  NoGrad no_grad;
  for (auto& [name, p] : parameters_) {
    Tensor g = p.grad();
    if (!g.defined())
      continue;
    if (options_.weight_decay != 0)
      g = g + options_.weight_decay * p;
    if (options_.momentum != 0) {
      Tensor& v = velocity.at(name);
      v.assign(options_.momentum * v + g);
      g = options_.nesterov ? g + options_.momentum * v : v;
    }
    p -= lr * g;
  }
}

AdamW::AdamW(std::vector<NamedTensor> parameters, const AdamWOptions& options)
    : lr(scalar(options.lr, DType::F32)), steps(scalar(0.0, DType::F32)),
      parameters_(std::move(parameters)), options_(options) {
  check_parameters("AdamW", parameters_);
  exp_avg = zeros_for(parameters_);
  exp_avg_sq = zeros_for(parameters_);
}

void AdamW::set_lr(double value) {
  set_scalar(lr, value);
}

void AdamW::step() {
  NoGrad no_grad;
  steps += 1.0;
  // 1 - beta^t by expm1, which keeps its digits in the first steps.
  Tensor size = lr / -expm1(steps * std::log(options_.beta1));
  Tensor rescale = 1.0 / -expm1(steps * std::log(options_.beta2));
  for (auto& [name, p] : parameters_) {
    Tensor g = p.grad();
    if (!g.defined())
      continue;
    Tensor& m = exp_avg.at(name);
    Tensor& v = exp_avg_sq.at(name);
    m.assign(options_.beta1 * m + (1 - options_.beta1) * g);
    v.assign(options_.beta2 * v + (1 - options_.beta2) * square(g));
    double decay = options_.decay_matrices_only && p.rank() < 2 ? 0 : options_.weight_decay;
    Tensor kept = decay != 0 ? p - lr * decay * p : p;
    p.assign(kept - size * m / (sqrt(v * rescale) + options_.eps));
  }
}

Tensor clip_grad_norm(const std::vector<NamedTensor>& parameters, double most) {
  if (!(most > 0))
    fail(ErrorKind::Value, "clip_grad_norm: the largest norm must be positive, not {}", most);
  NoGrad no_grad;
  Tensor total;
  for (const auto& [name, p] : parameters)
    if (Tensor g = p.grad(); g.defined()) {
      Tensor square_sum = square(g).sum();
      total = total.defined() ? total + square_sum : square_sum;
    }
  if (!total.defined())
    return scalar(0.0, DType::F32);
  Tensor norm = sqrt(total);
  // The small number is torch's: a norm of 0 must not divide by 0.
  Tensor factor = minimum(most / (norm + 1e-6), 1.0);
  for (auto [name, p] : parameters)
    if (Tensor g = p.grad(); g.defined())
      p.set_grad(g * factor);
  return norm;
}

double Warmup::at(std::int64_t step) const {
  return step < warmup ? peak * static_cast<double>(step + 1) / static_cast<double>(warmup) : peak;
}

double WarmupCosine::at(std::int64_t step) const {
  if (step < warmup)
    return Warmup{peak, warmup}.at(step);
  if (step >= total)
    return least;
  double done = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
  return least + (peak - least) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

} // namespace egret::optim
