// Optimizers, and clipping of gradients. schedules.h has schedules of the learning rate, averages.h
// accumulation of gradients and averages of parameters, mixed.h the scaling of losses.
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
#include "egret/schedules.h"
#include "egret/tensor.h"
#include "egret/tree.h"

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace egret::optim {

/// Parameters that are treated alike.
struct Group {
  std::vector<NamedTensor> parameters = {};
  double lr_factor = 1;                    ///< times the optimizer's learning rate
  std::optional<double> weight_decay = {}; ///< instead of the optimizer's
};

/// What an optimizer works on: one list of parameters, or groups of them.
///   optim::AdamW optimizer({{.parameters = body}, {.parameters = head, .lr_factor = 10}});
class Groups {
public:
  Groups() = default;
  Groups(std::vector<NamedTensor> parameters);
  Groups(std::vector<Group> groups) : groups_(std::move(groups)) {}
  Groups(std::initializer_list<Group> groups) : groups_(groups) {}
  const std::vector<Group>& list() const noexcept { return groups_; }

private:
  std::vector<Group> groups_;
};

using State = std::map<std::string, Tensor>; ///< by parameter

/// What all optimizers have.
class Optimizer {
public:
  void zero_grad() { nn::zero_grad(parameters_); }
  void set_lr(double lr); ///< in place, so that compiled steps see it
  const std::vector<NamedTensor>& parameters() const noexcept { return parameters_; }

  Tensor lr; ///< f32, rank 0

protected:
  /// Error(Value) for no parameters, for two of one name and for numbers that are not finite or
  /// negative.
  Optimizer(const char* who, const Groups& groups, double lr, double weight_decay);

  struct Setting {
    double lr_factor, weight_decay;
  };
  Tensor rate(std::size_t parameter) const; ///< the learning rate of one
  /// The gradient of one; empty when it has none. Error(State) for a parameter that nn::to() has
  /// converted since.
  Tensor gradient(std::size_t parameter) const;
  /// What the optimizer keeps for one, on the device of the parameter.
  Tensor& state(State& states, std::size_t parameter) const;
  /// The gradient of one plus its weight decay times itself; empty when it has none.
  Tensor decayed_gradient(std::size_t parameter) const;
  double decay(std::size_t parameter) const { return settings_[parameter].weight_decay; }

  std::vector<NamedTensor> parameters_;
  std::vector<Setting> settings_; ///< of each parameter
};

struct SgdOptions {
  double lr = 1e-2;
  double momentum = 0;
  double weight_decay = 0; ///< added to the gradient, times the parameter
  bool nesterov = false;
};

/// Gradient descent: v = momentum v + g, p -= lr v (Nesterov: p -= lr (g + momentum v)), as
/// torch.optim.SGD.
class Sgd : public Optimizer {
public:
  Sgd(const Groups& groups, const SgdOptions& options = {});
  void step(); ///< parameters without a gradient stay

  State velocity; ///< empty without momentum

  template <class V>
  void visit(V& v) {
    v("lr", lr);
    v("velocity", velocity);
  }

private:
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
class AdamW : public Optimizer {
public:
  AdamW(const Groups& groups, const AdamWOptions& options = {})
      : AdamW("AdamW", groups, options, false) {}
  void step(); ///< parameters without a gradient stay

  Tensor steps;              ///< f32, rank 0: steps taken
  State exp_avg, exp_avg_sq; ///< running means of g and g²

  template <class V>
  void visit(V& v) {
    v("lr", lr);
    v("steps", steps);
    v("exp_avg", exp_avg);
    v("exp_avg_sq", exp_avg_sq);
  }

protected:
  AdamW(const char* who, const Groups& groups, const AdamWOptions& options, bool coupled);

private:
  AdamWOptions options_;
  bool coupled_; ///< the decay is part of the gradient
};

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0; ///< added to the gradient, times the parameter
};

/// Adam as it was published (Kingma and Ba 2015), as torch.optim.Adam.
class Adam : public AdamW {
public:
  Adam(const Groups& groups, const AdamOptions& options = {});
};

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;     ///< the rate of step t (from 0) is lr / (1 + t lr_decay)
  double weight_decay = 0; ///< added to the gradient, times the parameter
  double initial = 0;      ///< what the sums start from
  double eps = 1e-10;
};

/// s += g², p -= lr g / (√s + eps) (Duchi et al. 2011), as torch.optim.Adagrad.
class Adagrad : public Optimizer {
public:
  Adagrad(const Groups& groups, const AdagradOptions& options = {});
  void step(); ///< parameters without a gradient stay

  Tensor steps; ///< f32, rank 0: steps taken
  State sum;    ///< of g²

  template <class V>
  void visit(V& v) {
    v("lr", lr);
    v("steps", steps);
    v("sum", sum);
  }

private:
  AdagradOptions options_;
};

struct RmsPropOptions {
  double lr = 1e-2;
  double alpha = 0.99; ///< of the running means
  double eps = 1e-8;
  double weight_decay = 0; ///< added to the gradient, times the parameter
  double momentum = 0;
  bool centered = false; ///< divides by the deviation instead of the root mean square
};

/// s = alpha s + (1 - alpha) g², p -= lr g / (√s + eps) (Hinton 2012), as torch.optim.RMSprop.
class RmsProp : public Optimizer {
public:
  RmsProp(const Groups& groups, const RmsPropOptions& options = {});
  void step(); ///< parameters without a gradient stay

  State square_avg, grad_avg, momentum; ///< the last two when they are used

  template <class V>
  void visit(V& v) {
    v("lr", lr);
    v("square_avg", square_avg);
    v("grad_avg", grad_avg);
    v("momentum", momentum);
  }

private:
  RmsPropOptions options_;
};

struct LionOptions {
  double lr = 1e-4;
  double beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0; ///< p -= lr weight_decay p
};

/// p -= lr sign(beta1 m + (1 - beta1) g), m = beta2 m + (1 - beta2) g (Chen et al. 2023).
class Lion : public Optimizer {
public:
  Lion(const Groups& groups, const LionOptions& options = {});
  void step(); ///< parameters without a gradient stay

  State exp_avg; ///< m

  template <class V>
  void visit(V& v) {
    v("lr", lr);
    v("exp_avg", exp_avg);
  }

private:
  LionOptions options_;
};

/// A matrix with the singular vectors of `m` (rank 2, wide or tall) and singular values near 1
/// (between about 0.7 and 1.2): `steps` of the iteration x = a x + (b (x xᵀ) + c (x xᵀ)²) x with a,
/// b, c = 3.4445, -4.7750, 2.0315 (Jordan et al. 2024), from m over its Frobenius norm.
Tensor orthogonalized(const Tensor& m, int steps = 5);

struct MuonOptions {
  double lr = 2e-2;
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0; ///< p -= lr weight_decay p
  int newton_schulz = 5;   ///< steps of the iteration
  /// Which parameters are updated by AdamW instead: those for which this holds (the table of an
  /// embedding, the output layer), and all whose rank is not 2.
  std::function<bool(const std::string& name)> by_adamw = {};
  AdamWOptions adamw = {.lr = 3e-4};
};

/// Momentum whose matrices are orthogonalized (Jordan et al. 2024): m = momentum m + (1 - momentum)
/// g, p -= lr √max(1, rows/columns) orthogonalized(m) (Nesterov: of momentum m + (1 - momentum) g),
/// as torch.optim.Muon, but in f32 throughout.
class Muon : public Optimizer {
public:
  /// Error(Value) when no parameter is a matrix.
  Muon(const Groups& groups, const MuonOptions& options = {});
  void step();            ///< parameters without a gradient stay
  void set_lr(double lr); ///< AdamW's rate keeps its proportion to it

  State momentum;
  std::optional<AdamW> others;

  template <class V>
  void visit(V& v) {
    v("lr", lr);
    v("momentum", momentum);
    v("others", others);
  }

private:
  std::vector<std::size_t> matrices_; ///< places in parameters_
  MuonOptions options_;
};

/// Multiplies all gradients by min(1, most / norm), norm being that of all gradients together
/// (Pascanu et al. 2013); returns it, rank 0. Tensors without a gradient do not count.
Tensor clip_grad_norm(const std::vector<NamedTensor>& parameters, double most);

/// Cuts each element of all gradients to [-most, most].
void clip_grad_value(const std::vector<NamedTensor>& parameters, double most);

} // namespace egret::optim
