#include "egret/averages.h"

#include "egret/grad.h"
#include "optim/state.h"
#include "support/fail.h"

namespace egret::optim {

Accumulator::Accumulator(std::vector<NamedTensor> parameters)
    : count(scalar(0.0, DType::F32)), sums(state_for(parameters)),
      parameters_(std::move(parameters)) {}

void Accumulator::add() {
  NoGrad no_grad;
  count += 1.0;
  for (auto& [name, p] : parameters_)
    if (Tensor g = p.grad(); g.defined()) {
      sums.at(name) += g;
      p.zero_grad();
    }
}

void Accumulator::give() {
  NoGrad no_grad;
  const Tensor n = maximum(count, 1.0);
  for (auto& [name, p] : parameters_) {
    Tensor& sum = sums.at(name);
    p.set_grad(sum / n.to(sum.dtype()));
    sum.assign(0.0);
  }
  count.assign(0.0);
}

Ema::Ema(std::vector<NamedTensor> parameters, double decay, bool warmup)
    : updates(scalar(0.0, DType::F32)), parameters_(std::move(parameters)), decay_(decay),
      warmup_(warmup) {
  if (!(decay >= 0 && decay <= 1))
    fail(ErrorKind::Value, "Ema: a decay of {}; it lies between 0 and 1", decay);
  NoGrad no_grad;
  averages = state_for(parameters_);
  for (const auto& [name, p] : parameters_)
    averages.at(name).assign(p.detach());
}

void Ema::update() {
  NoGrad no_grad;
  updates += 1.0;
  const Tensor kept =
      warmup_ ? minimum((updates + 1.0) / (updates + 10.0), decay_) : scalar(decay_, DType::F32);
  for (const auto& [name, p] : parameters_) {
    Tensor& average = averages.at(name);
    const Tensor k = kept.to(average.dtype());
    average.assign(k * average + (1.0 - k) * p);
  }
}

void Ema::swap() {
  NoGrad no_grad;
  for (auto& [name, p] : parameters_) {
    Tensor& average = averages.at(name);
    const Tensor before = p.detach();
    p.assign(average.detach());
    average.assign(before);
  }
}

} // namespace egret::optim
