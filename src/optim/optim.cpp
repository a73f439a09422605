#include "egret/optim.h"

#include "egret/grad.h"
#include "optim/state.h"
#include "support/fail.h"

#include <cmath>

namespace egret::optim {

std::map<std::string, Tensor> state_for(const std::vector<NamedTensor>& parameters, double value) {
  std::map<std::string, Tensor> state;
  for (const auto& [name, tensor] : parameters)
    if (!state.emplace(name, full_like(tensor.detach(), value)).second)
      fail(ErrorKind::Value, "optimizer: two parameters are named '{}'", name);
  return state;
}

Groups::Groups(std::vector<NamedTensor> parameters) {
  if (!parameters.empty())
    groups_.push_back({std::move(parameters)});
}

Optimizer::Optimizer(const char* who, const Groups& groups, double lr_value, double weight_decay)
    : lr(scalar(lr_value, DType::F32)) {
  if (!(lr_value >= 0) || !std::isfinite(lr_value))
    fail(ErrorKind::Value, "{}: a learning rate of {}", who, lr_value);
  for (const Group& group : groups.list()) {
    const double own = group.weight_decay.value_or(weight_decay);
    if (!(own >= 0 && group.lr_factor >= 0) || !std::isfinite(own + group.lr_factor))
      fail(ErrorKind::Value, "{}: a weight decay of {} and a learning rate times {}", who, own,
           group.lr_factor);
    parameters_.insert(parameters_.end(), group.parameters.begin(), group.parameters.end());
    settings_.insert(settings_.end(), group.parameters.size(), {group.lr_factor, own});
  }
  if (parameters_.empty())
    fail(ErrorKind::Value, "{}: no parameters (do they require gradients?)", who);
  state_for(parameters_); // refuses two of one name, also for optimizers without state
}

void Optimizer::set_lr(double value) {
  NoGrad no_grad;
  lr.assign(value);
}

Tensor Optimizer::rate(std::size_t parameter) const {
  const double factor = settings_[parameter].lr_factor;
  return factor == 1 ? lr : lr * factor;
}

Tensor Optimizer::gradient(std::size_t parameter) const {
  const auto& [name, tensor] = parameters_[parameter];
  if (egret::detail::is_retired(tensor))
    fail(ErrorKind::State,
         "optimizer: '{}' was converted to another dtype after the optimizer was made, which has "
         "the tensor of before; make the optimizer of the converted parameters",
         name);
  return tensor.grad();
}

Tensor& Optimizer::state(State& states, std::size_t parameter) const {
  const auto& [name, tensor] = parameters_[parameter];
  Tensor& own = states.at(name);
  if (!same_device(own, tensor))
    own.set_device(tensor.device());
  return own;
}

Tensor Optimizer::decayed_gradient(std::size_t parameter) const {
  const Tensor& p = parameters_[parameter].tensor;
  const Tensor g = gradient(parameter);
  return g.defined() && decay(parameter) != 0 ? g + decay(parameter) * p : g;
}

Sgd::Sgd(const Groups& groups, const SgdOptions& options)
    : Optimizer("Sgd", groups, options.lr, options.weight_decay), options_(options) {
  if (options.momentum != 0)
    velocity = state_for(parameters_);
}

void Sgd::step() {
  NoGrad no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto& [name, p] = parameters_[i];
    Tensor g = decayed_gradient(i);
    if (!g.defined())
      continue;
    if (options_.momentum != 0) {
      Tensor& v = state(velocity, i);
      v.assign(options_.momentum * v + g);
      g = options_.nesterov ? g + options_.momentum * v : v;
    }
    p -= rate(i) * g;
  }
}

AdamW::AdamW(const char* who, const Groups& groups, const AdamWOptions& options, bool coupled)
    : Optimizer(who, groups, options.lr, options.weight_decay), steps(scalar(0.0, DType::F32)),
      exp_avg(state_for(parameters_)), exp_avg_sq(state_for(parameters_)), options_(options),
      coupled_(coupled) {}

void AdamW::step() {
  NoGrad no_grad;
  steps += 1.0;
  // 1 - beta^t by expm1, which keeps its digits in the first steps.
  const Tensor bias1 = -expm1(steps * std::log(options_.beta1));
  const Tensor rescale = 1.0 / -expm1(steps * std::log(options_.beta2));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto& [name, p] = parameters_[i];
    Tensor g = gradient(i);
    if (!g.defined())
      continue;
    const double decayed = options_.decay_matrices_only && p.rank() < 2 ? 0 : decay(i);
    if (coupled_ && decayed != 0)
      g = g + decayed * p;
    Tensor& m = state(exp_avg, i);
    Tensor& v = state(exp_avg_sq, i);
    m.assign(options_.beta1 * m + (1 - options_.beta1) * g);
    v.assign(options_.beta2 * v + (1 - options_.beta2) * square(g));
    const Tensor size = rate(i);
    const Tensor kept = decayed != 0 && !coupled_ ? p - size * decayed * p : p;
    p.assign(kept - size / bias1 * m / (sqrt(v * rescale) + options_.eps));
  }
}

Adam::Adam(const Groups& groups, const AdamOptions& o)
    : AdamW("Adam", groups,
            {.lr = o.lr,
             .beta1 = o.beta1,
             .beta2 = o.beta2,
             .eps = o.eps,
             .weight_decay = o.weight_decay},
            true) {}

Adagrad::Adagrad(const Groups& groups, const AdagradOptions& options)
    : Optimizer("Adagrad", groups, options.lr, options.weight_decay),
      steps(scalar(0.0, DType::F32)), sum(state_for(parameters_, options.initial)),
      options_(options) {}

void Adagrad::step() {
  NoGrad no_grad;
  const Tensor slower = 1.0 + steps * options_.lr_decay;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto& [name, p] = parameters_[i];
    Tensor g = decayed_gradient(i);
    if (!g.defined())
      continue;
    Tensor& s = state(sum, i);
    s.assign(s + square(g));
    const Tensor size = options_.lr_decay != 0 ? rate(i) / slower : rate(i);
    p -= size * g / (sqrt(s) + options_.eps);
  }
  steps += 1.0;
}

RmsProp::RmsProp(const Groups& groups, const RmsPropOptions& options)
    : Optimizer("RmsProp", groups, options.lr, options.weight_decay),
      square_avg(state_for(parameters_)), options_(options) {
  if (options.centered)
    grad_avg = state_for(parameters_);
  if (options.momentum != 0)
    momentum = state_for(parameters_);
}

void RmsProp::step() {
  NoGrad no_grad;
  const double a = options_.alpha;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto& [name, p] = parameters_[i];
    Tensor g = decayed_gradient(i);
    if (!g.defined())
      continue;
    Tensor& s = state(square_avg, i);
    s.assign(a * s + (1 - a) * square(g));
    Tensor spread = s;
    if (options_.centered) {
      Tensor& mean = state(grad_avg, i);
      mean.assign(a * mean + (1 - a) * g);
      spread = s - square(mean);
    }
    Tensor change = g / (sqrt(spread) + options_.eps);
    if (options_.momentum != 0) {
      Tensor& v = state(momentum, i);
      v.assign(options_.momentum * v + change);
      change = v;
    }
    p -= rate(i) * change;
  }
}

Lion::Lion(const Groups& groups, const LionOptions& options)
    : Optimizer("Lion", groups, options.lr, options.weight_decay), exp_avg(state_for(parameters_)),
      options_(options) {}

void Lion::step() {
  NoGrad no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto& [name, p] = parameters_[i];
    const Tensor g = gradient(i);
    if (!g.defined())
      continue;
    Tensor& m = state(exp_avg, i);
    const Tensor direction = sign(options_.beta1 * m + (1 - options_.beta1) * g);
    m.assign(options_.beta2 * m + (1 - options_.beta2) * g);
    const Tensor size = rate(i);
    const Tensor kept = decay(i) != 0 ? p - size * decay(i) * p : p;
    p.assign(kept - size * direction);
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

void clip_grad_value(const std::vector<NamedTensor>& parameters, double most) {
  if (!(most > 0))
    fail(ErrorKind::Value, "clip_grad_value: the largest value must be positive, not {}", most);
  NoGrad no_grad;
  for (auto [name, p] : parameters)
    if (Tensor g = p.grad(); g.defined())
      p.set_grad(clamp(g, -most, most));
}

} // namespace egret::optim
