// A training step as people write it, for what times such steps.
#pragma once

#include "egret/functional.h"
#include "egret/tensor.h"
#include "egret/tree.h"

namespace egret::tool {

/// A model and its optimizer.
template <class Model, class Optimizer>
struct Training {
  Model model;
  Optimizer optimizer;
  EGRET_FIELDS(model, optimizer)
};

/// The mean cross entropy of logits [..., classes] against targets [...].
inline Tensor loss_of(const Tensor& logits, const Tensor& targets) {
  Tensor log_p = logits - logits.max(-1, true).detach();
  log_p = log_p - log(exp(log_p).sum(-1, true));
  return -(log_p * one_hot(targets, logits.size(-1))).sum(-1).mean();
}

/// One step on a batch; gives the loss, which nothing has computed yet without compile().
template <class T>
Tensor recorded_step(T& training, const Tensor& x, const Tensor& y) {
  Tensor loss = loss_of(training.model(x), y);
  loss.backward();
  training.optimizer.step();
  training.optimizer.zero_grad();
  return loss;
}

} // namespace egret::tool
