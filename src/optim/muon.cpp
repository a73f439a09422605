// Muon: momentum whose matrices are orthogonalized.
#include "egret/grad.h"
#include "egret/optim.h"
#include "optim/state.h"
#include "support/fail.h"

#include <algorithm>
#include <cmath>

namespace egret::optim {

namespace {

bool is_matrix(const NamedTensor& parameter, const MuonOptions& options) {
  return parameter.tensor.rank() == 2 && !(options.by_adamw && options.by_adamw(parameter.name));
}

Groups others_of(const Groups& groups, const MuonOptions& options) {
  std::vector<Group> kept;
  for (Group group : groups.list()) {
    std::erase_if(group.parameters, [&](const NamedTensor& p) { return is_matrix(p, options); });
    if (!group.parameters.empty())
      kept.push_back(std::move(group));
  }
  return kept;
}

} // namespace

Tensor orthogonalized(const Tensor& m, int steps) {
  if (m.rank() != 2)
    fail(ErrorKind::Shape, "orthogonalized: takes a matrix, got {}", to_string(m.shape()));
  constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
  const bool tall = m.size(0) > m.size(1); // the smaller product is x xᵀ of the wide form
  Tensor x = tall ? m.transpose() : m;
  x = x / maximum(norm(x), 1e-7);
  for (int i = 0; i < steps; ++i) {
    const Tensor a = matmul(x, x.transpose());
    x = kA * x + matmul(kB * a + kC * matmul(a, a), x);
  }
  return tall ? x.transpose() : x;
}

Muon::Muon(const Groups& groups, const MuonOptions& options)
    : Optimizer("Muon", groups, options.lr, options.weight_decay), options_(options) {
  std::vector<NamedTensor> matrices;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (is_matrix(parameters_[i], options)) {
      matrices_.push_back(i);
      matrices.push_back(parameters_[i]);
    }
  if (matrices.empty())
    fail(ErrorKind::Value, "Muon: no parameter is a matrix; use AdamW");
  momentum = state_for(matrices);
  if (Groups rest = others_of(groups, options); !rest.list().empty())
    others.emplace(rest, options.adamw);
}

void Muon::set_lr(double value) {
  Optimizer::set_lr(value);
  if (others)
    others->set_lr(options_.lr > 0 ? value * options_.adamw.lr / options_.lr : value);
}

void Muon::step() {
  NoGrad no_grad;
  const double mu = options_.momentum;
  for (std::size_t i : matrices_) {
    auto& [name, p] = parameters_[i];
    const Tensor g = gradient(i);
    if (!g.defined())
      continue;
    Tensor& m = state(momentum, i);
    m.assign(mu * m + (1 - mu) * g);
    const Tensor direction =
        orthogonalized(options_.nesterov ? mu * m + (1 - mu) * g : m, options_.newton_schulz);
    const double shape =
        std::sqrt(std::max(1.0, static_cast<double>(p.size(0)) / static_cast<double>(p.size(1))));
    const Tensor size = rate(i);
    const Tensor kept = decay(i) != 0 ? p - size * decay(i) * p : p;
    p.assign(kept - size * shape * direction);
  }
  if (others)
    others->step();
}

} // namespace egret::optim
