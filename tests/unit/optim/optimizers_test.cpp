// Every optimizer beside its formula as a plain loop in double.
#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/optim.h"
#include "support/files.h"

#include <cmath>
#include <gtest/gtest.h>

namespace egret::optim {
namespace {

constexpr int kSteps = 12;

std::vector<NamedTensor> parameters(std::initializer_list<Tensor> tensors) {
  std::vector<NamedTensor> named;
  for (Tensor t : tensors)
    named.push_back({"p" + std::to_string(named.size()), t.set_requires_grad()});
  return named;
}

/// Sets the gradient of Σ p⁴/4 - p: another scale for each element, and signs that change.
void set_gradients(const std::vector<NamedTensor>& parameters) {
  for (auto [name, p] : parameters)
    p.set_grad((p * p * p - 1.0).detach());
}
double gradient(double p) {
  return p * p * p - 1;
}

/// Runs an optimizer and a rule "update one element, given its number" side by side.
template <class O, class Rule>
void expect_same(O& optimizer, Rule&& rule, double tolerance = 3e-6) {
  std::vector<double> want;
  for (const auto& named : optimizer.parameters())
    for (double value : named.tensor.template to_vector<double>())
      want.push_back(value);
  for (int t = 1; t <= kSteps; ++t) {
    set_gradients(optimizer.parameters());
    optimizer.step();
    for (std::size_t i = 0; i < want.size(); ++i)
      want[i] = rule(i, want[i], t);
    std::size_t i = 0;
    for (const auto& named : optimizer.parameters())
      for (double value : named.tensor.template to_vector<double>()) {
        EXPECT_NEAR(value, want[i], tolerance * (1 + std::abs(want[i]))) << i << " step " << t;
        ++i;
      }
  }
}

std::vector<NamedTensor> two() {
  return parameters({tensor({{1.5, -2.0}, {0.25, 0.75}}), tensor({-0.5})});
}

TEST(Adam, AddsTheDecayToTheGradient) {
  const AdamOptions o{.lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.3};
  Adam optimizer(two(), o);
  std::vector<double> m(5), v(5);
  expect_same(optimizer, [&](std::size_t i, double p, int t) {
    const double g = gradient(p) + o.weight_decay * p;
    m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
    v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
    const double mean = m[i] / (1 - std::pow(o.beta1, t)),
                 square = v[i] / (1 - std::pow(o.beta2, t));
    return p - o.lr * mean / (std::sqrt(square) + o.eps);
  });
}

TEST(Adagrad, FollowsTheFormula) {
  const AdagradOptions o{.lr = 0.2, .lr_decay = 0.1, .weight_decay = 0.05, .initial = 0.5};
  Adagrad optimizer(two(), o);
  std::vector<double> s(5, o.initial);
  expect_same(optimizer, [&](std::size_t i, double p, int t) {
    const double g = gradient(p) + o.weight_decay * p;
    s[i] += g * g;
    return p - o.lr / (1 + (t - 1) * o.lr_decay) * g / (std::sqrt(s[i]) + o.eps);
  });
}

TEST(RmsProp, FollowsTheFormula) {
  for (const RmsPropOptions o :
       {RmsPropOptions{.lr = 0.02, .alpha = 0.9},
        RmsPropOptions{.lr = 0.02, .alpha = 0.9, .weight_decay = 0.1, .momentum = 0.7},
        RmsPropOptions{.lr = 0.01, .alpha = 0.8, .eps = 1e-2, .momentum = 0.5, .centered = true}}) {
    RmsProp optimizer(two(), o);
    std::vector<double> s(5), mean(5), v(5);
    expect_same(
        optimizer,
        [&](std::size_t i, double p, int) {
          const double g = gradient(p) + o.weight_decay * p;
          s[i] = o.alpha * s[i] + (1 - o.alpha) * g * g;
          mean[i] = o.centered ? o.alpha * mean[i] + (1 - o.alpha) * g : 0;
          v[i] = o.momentum * v[i] + g / (std::sqrt(s[i] - mean[i] * mean[i]) + o.eps);
          return p - o.lr * v[i];
        },
        1e-5);
  }
}

TEST(Lion, StepsBySigns) {
  const LionOptions o{.lr = 0.03, .beta1 = 0.85, .beta2 = 0.95, .weight_decay = 0.2};
  Lion optimizer(two(), o);
  std::vector<double> m(5);
  expect_same(optimizer, [&](std::size_t i, double p, int) {
    const double g = gradient(p), c = o.beta1 * m[i] + (1 - o.beta1) * g;
    m[i] = o.beta2 * m[i] + (1 - o.beta2) * g;
    return p * (1 - o.lr * o.weight_decay) - o.lr * ((c > 0) - (c < 0));
  });
}

using Matrix = std::vector<std::vector<double>>;

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b[0].size(); ++j)
      for (std::size_t k = 0; k < b.size(); ++k)
        c[i][j] += a[i][k] * b[k][j];
  return c;
}
Matrix turned(const Matrix& a) {
  Matrix t(a[0].size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[0].size(); ++j)
      t[j][i] = a[i][j];
  return t;
}
Matrix newton_schulz(Matrix x, int steps) {
  double squares = 0;
  for (auto& row : x)
    for (double value : row)
      squares += value * value;
  for (auto& row : x)
    for (double& value : row)
      value /= std::sqrt(squares);
  for (int s = 0; s < steps; ++s) {
    const Matrix a = product(x, turned(x)), aax = product(product(a, a), x), ax = product(a, x);
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t j = 0; j < x[0].size(); ++j)
        x[i][j] = 3.4445 * x[i][j] - 4.7750 * ax[i][j] + 2.0315 * aax[i][j];
  }
  return x;
}

TEST(Muon, OrthogonalizesTheMomentumOfMatricesAndLeavesTheRestToAdamW) {
  const MuonOptions o{.lr = 0.1,
                      .momentum = 0.8,
                      .weight_decay = 0.1,
                      .by_adamw = [](const std::string& name) { return name == "p2"; },
                      .adamw = {.lr = 0.02}};
  Generator random(5);
  auto ps = parameters(
      {randn({3, 5}, random), randn({6, 2}, random), randn({2, 2}, random), randn({4}, random)});
  auto rest = parameters({ps[2].tensor.detach(), ps[3].tensor.detach()});
  Muon optimizer(ps, o);
  AdamW other(rest, o.adamw);
  std::vector<Matrix> want, momentum;
  for (std::size_t n : {0U, 1U}) {
    const auto rows = static_cast<std::size_t>(ps[n].tensor.size(0)),
               columns = static_cast<std::size_t>(ps[n].tensor.size(1));
    auto values = ps[n].tensor.to_vector<double>();
    Matrix m(rows, std::vector<double>(columns));
    momentum.push_back(m);
    for (std::size_t i = 0; i < values.size(); ++i)
      m[i / columns][i % columns] = values[i];
    want.push_back(m);
  }
  for (int t = 0; t < 6; ++t) {
    set_gradients(ps);
    set_gradients(rest);
    optimizer.step();
    other.step();
    for (std::size_t n : {0U, 1U}) {
      Matrix direction = want[n];
      for (std::size_t i = 0; i < direction.size(); ++i)
        for (std::size_t j = 0; j < direction[0].size(); ++j) {
          const double g = gradient(want[n][i][j]);
          double& m = momentum[n][i][j];
          m = o.momentum * m + (1 - o.momentum) * g;
          direction[i][j] = o.momentum * m + (1 - o.momentum) * g;
        }
      // The product of the wide form: a tall matrix is turned.
      const bool tall = direction.size() > direction[0].size();
      direction = tall ? turned(newton_schulz(turned(direction), 5)) : newton_schulz(direction, 5);
      const double shape = std::sqrt(std::max(1.0, static_cast<double>(direction.size()) /
                                                       static_cast<double>(direction[0].size())));
      auto got = ps[n].tensor.to_vector<double>();
      for (std::size_t i = 0; i < direction.size(); ++i)
        for (std::size_t j = 0; j < direction[0].size(); ++j) {
          double& p = want[n][i][j];
          p = p * (1 - o.lr * o.weight_decay) - o.lr * shape * direction[i][j];
          EXPECT_NEAR(got[i * direction[0].size() + j], p, 1e-4) << n << " step " << t;
          p = got[i * direction[0].size() + j]; // the iteration amplifies differences
        }
    }
    for (std::size_t n : {0U, 1U})
      EXPECT_EQ(ps[n + 2].tensor.to_vector(), rest[n].tensor.to_vector());
  }
  optimizer.set_lr(0.05);
  EXPECT_NEAR(optimizer.others->lr.item(), 0.01, 1e-8);
}

TEST(Muon, SingularValuesComeNearOne) {
  Generator random(2);
  for (Shape shape : {Shape{6, 40}, Shape{40, 6}}) {
    Tensor x = orthogonalized(randn(shape, random), 6);
    Tensor square = shape[0] == Expr(6) ? matmul(x, x.transpose()) : matmul(x.transpose(), x);
    auto values = square.to_vector();
    for (std::size_t i = 0; i < 36; ++i) {
      EXPECT_GT(values[i], i % 7 == 0 ? 0.4F : -0.4F);
      EXPECT_LT(values[i], i % 7 == 0 ? 1.6F : 0.4F);
    }
  }
  EXPECT_THROW(orthogonalized(ones({3})), Error);
  EXPECT_THROW(Muon(parameters({ones({3})})), Error);
}

TEST(Groups, HaveTheirOwnRateAndDecay) {
  auto make = [] { return parameters({ones({2}), full({2}, 2.0), full({2}, -1.0)}); };
  auto ps = make();
  AdamW optimizer({{.parameters = {ps[0]}},
                   {.parameters = {ps[1]}, .lr_factor = 0.5},
                   {.parameters = {ps[2]}, .weight_decay = 0.7}},
                  {.lr = 0.1, .weight_decay = 0.2});
  std::vector<double> m(6), v(6);
  expect_same(optimizer, [&](std::size_t i, double p, int t) {
    const double lr = i / 2 == 1 ? 0.05 : 0.1, decay = i / 2 == 2 ? 0.7 : 0.2, g = gradient(p);
    m[i] = 0.9 * m[i] + 0.1 * g;
    v[i] = 0.999 * v[i] + 0.001 * g * g;
    return p - lr * decay * p -
           lr * m[i] / (1 - std::pow(0.9, t)) / (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-8);
  });
}

TEST(Groups, FollowTheCommonRate) {
  auto ps = parameters({scalar(0.0), scalar(0.0)});
  Sgd optimizer({{.parameters = {ps[0]}}, {.parameters = {ps[1]}, .lr_factor = 10}}, {.lr = 1});
  optimizer.set_lr(0.125);
  for (auto [name, p] : ps)
    p.set_grad(scalar(1.0));
  optimizer.step();
  EXPECT_EQ(ps[0].tensor.item(), -0.125);
  EXPECT_EQ(ps[1].tensor.item(), -1.25);
}

TEST(OptimizerErrors, NameTheOptimizerAndTheMistake) {
  auto ps = parameters({ones({2})});
  auto message = [&](auto&& run) { return test::error_of(ErrorKind::Value, run); };
  EXPECT_NE(message([&] { Lion(ps, {.lr = -1}); }).find("Lion: a learning rate of -1"),
            std::string::npos);
  EXPECT_NE(message([&] { Adam(ps, {.weight_decay = std::nan("")}); }).find("Adam: a weight decay"),
            std::string::npos);
  EXPECT_NE(message([&] { RmsProp({}); }).find("RmsProp: no parameters"), std::string::npos);
  EXPECT_NE(message([&] {
              Sgd({{.parameters = ps}, {.parameters = ps}});
            }).find("two parameters are named 'p0'"),
            std::string::npos);
}

template <class O, class... A>
void expect_compiled_and_lazy_agree(A... options) {
  auto p = two(), q = two();
  O lazy(p, options...), compiled(q, options...);
  auto run = [](O& optimizer) {
    Tensor loss = scalar(0.0);
    for (const auto& [name, t] : optimizer.parameters())
      loss = loss + (square(square(t)) / 4.0 - t).sum();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  };
  auto step = compile(run);
  for (int i = 0; i < 3; ++i) {
    run(lazy);
    step(compiled);
  }
  EXPECT_EQ(step.traces(), 1U);
  for (std::size_t n = 0; n < p.size(); ++n) {
    auto a = p[n].tensor.to_vector(), b = q[n].tensor.to_vector();
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], 1e-5) << n;
  }
}

TEST(Optimizers, CompiledStepsDoTheSame) {
  expect_compiled_and_lazy_agree<Adam>(AdamOptions{.weight_decay = 0.1});
  expect_compiled_and_lazy_agree<Adagrad>(AdagradOptions{.lr_decay = 0.1});
  expect_compiled_and_lazy_agree<RmsProp>(RmsPropOptions{.momentum = 0.9, .centered = true});
  expect_compiled_and_lazy_agree<Lion>(LionOptions{});
  expect_compiled_and_lazy_agree<Muon>(MuonOptions{});
}

TEST(ClipGradValue, CutsEachElement) {
  auto ps = parameters({zeros({3}), scalar(0.0)});
  ps[0].tensor.set_grad(tensor({-5.0, 0.5, 2.0}));
  clip_grad_value(ps, 1.5);
  EXPECT_EQ(ps[0].tensor.grad().to_vector(), (std::vector<float>{-1.5, 0.5, 1.5}));
  EXPECT_THROW(clip_grad_value(ps, 0), Error);
}

} // namespace
} // namespace egret::optim
