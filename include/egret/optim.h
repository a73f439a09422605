// Optimizers, schedules of the learning rate, and clipping of gradients.
//
//   optim::AdamW optimizer(nn::named_parameters(model), {.lr = 3e-4});
//   loss.backward();
//   optim::clip_grad_norm(optimizer.parameters(), 1.0);
//   optimizer.step();
//   optimizer.zero_grad();
//
// An optimizer's state, its learning rate and step count among it, is a tree of tensors: it can be
// passed to a compiled function by reference, saved and loaded. The parameters themselves belong to
// the model and are not part of that tree.
#pragma once

#include "egret/nn.h"
#include "egret/tensor.h"
#include "egret/tree.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace egret::optim {

struct SgdOptions {
  double lr = 1e-2;
  double momentum = 0;
  double weight_decay = 0; ///< added to the gradient, times the parameter
  bool nesterov = false;
};

/// Gradient descent: v = momentum v + g, p -= lr v (Nesterov: p -= lr (g + momentum v)), as
/// torch.optim.SGD.
class Sgd {
public:
  Sgd(std::vector<NamedTensor> parameters, const SgdOptions& options = {});
  void step(); ///< parameters without a gradient stay
  void zero_grad() { nn::zero_grad(parameters_); }
  void set_lr(double lr);
  const std::vector<NamedTensor>& parameters() const noexcept { return parameters_; }

  Tensor lr;                              ///< f32, rank 0
  std::map<std::string, Tensor> velocity; ///< by parameter; empty without momentum

  template <class V>
  void visit(V& v) {
    v("lr", lr);
    v("velocity", velocity);
  }

private:
  std::vector<NamedTensor> parameters_;
  SgdOptions options_;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay =
      1e-2; ///< p -= lr weight_decay p, of tensors with rank 2 and more when decay_matrices_only
  bool decay_matrices_only = false;
};

/// Adam (Kingma and Ba 2015) with decoupled weight decay (Loshchilov and Hutter 2019), as
/// torch.optim.AdamW.
class AdamW {
public:
  AdamW(std::vector<NamedTensor> parameters, const AdamWOptions& options = {});
  void step(); ///< parameters without a gradient stay
  void zero_grad() { nn::zero_grad(parameters_); }
  void set_lr(double lr);
  const std::vector<NamedTensor>& parameters() const noexcept { return parameters_; }

  Tensor lr;                                         ///< f32, rank 0
  Tensor steps;                                      ///< f32, rank 0: steps taken
  std::map<std::string, Tensor> exp_avg, exp_avg_sq; ///< by parameter: running means of g and g²

  template <class V>
  void visit(V& v) {
    v("lr", lr);
    v("steps", steps);
    v("exp_avg", exp_avg);
    v("exp_avg_sq", exp_avg_sq);
  }

private:
  std::vector<NamedTensor> parameters_;
  AdamWOptions options_;
};

/// Multiplies all gradients by min(1, most / norm), norm being that of all gradients together
/// (Pascanu et al. 2013); returns it, rank 0. Tensors without a gradient do not count.
Tensor clip_grad_norm(const std::vector<NamedTensor>& parameters, double most);

/// Rises linearly from 0 to `peak` in `warmup` steps, then falls along half a cosine to `least` at
/// step `total` (Loshchilov and Hutter 2017) and stays there.
struct WarmupCosine {
  double peak = 1e-3;
  std::int64_t warmup = 0, total = 1;
  double least = 0;
  double at(std::int64_t step) const; ///< for steps counted from 0; step 0 has peak / warmup
};

/// Rises linearly from 0 to `peak` in `warmup` steps and stays there.
struct Warmup {
  double peak = 1e-3;
  std::int64_t warmup = 0;
  double at(std::int64_t step) const;
};

} // namespace egret::optim
