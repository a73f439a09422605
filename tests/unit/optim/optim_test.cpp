#include "egret/compile.h"
#include "egret/nn.h"
#include "egret/optim.h"
#include "support/files.h"

#include <cmath>
#include <gtest/gtest.h>

namespace egret::optim {
namespace {

std::vector<NamedTensor> parameters_of(std::initializer_list<Tensor> tensors) {
  std::vector<NamedTensor> named;
  for (Tensor t : tensors)
    named.push_back({"p" + std::to_string(named.size()), t.set_requires_grad()});
  return named;
}

/// The optimizer's formula in double, one parameter, gradient 2 p (of p²).
struct Reference {
  double p, v = 0, m = 0;
  int t = 0;
  void sgd(const SgdOptions& o) {
    double g = 2 * p + o.weight_decay * p;
    if (o.momentum != 0) {
      v = o.momentum * v + g;
      g = o.nesterov ? g + o.momentum * v : v;
    }
    p -= o.lr * g;
  }
  void adamw(const AdamWOptions& o) {
    double g = 2 * p;
    ++t;
    p -= o.lr * o.weight_decay * p;
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    p -=
        o.lr * m / (1 - std::pow(o.beta1, t)) / (std::sqrt(v / (1 - std::pow(o.beta2, t))) + o.eps);
  }
};

template <class O>
void one_step(O& optimizer) {
  Tensor loss = scalar(0.0);
  for (const auto& named : optimizer.parameters())
    loss = loss + named.tensor.square().sum();
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();
}

TEST(Sgd, FollowsTheFormula) {
  for (SgdOptions o :
       {SgdOptions{.lr = 0.1}, SgdOptions{.lr = 0.1, .momentum = 0.9},
        SgdOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}}) {
    Sgd optimizer(parameters_of({tensor({1.5, -2.0})}), o);
    Reference a{1.5}, b{-2.0};
    for (int i = 0; i < 5; ++i) {
      one_step(optimizer);
      a.sgd(o);
      b.sgd(o);
    }
    auto got = optimizer.parameters()[0].tensor.to_vector();
    EXPECT_NEAR(got[0], a.p, 1e-5);
    EXPECT_NEAR(got[1], b.p, 1e-5);
  }
}

TEST(AdamW, FollowsTheFormula) {
  AdamWOptions o{.lr = 0.1, .weight_decay = 0.05};
  AdamW optimizer(parameters_of({tensor({1.5, -2.0}), scalar(3.0)}), o);
  Reference a{1.5}, b{-2.0}, c{3.0};
  for (int i = 0; i < 7; ++i) {
    one_step(optimizer);
    for (Reference* r : {&a, &b, &c})
      r->adamw(o);
  }
  auto got = optimizer.parameters()[0].tensor.to_vector();
  EXPECT_NEAR(got[0], a.p, 2e-5);
  EXPECT_NEAR(got[1], b.p, 2e-5);
  EXPECT_NEAR(optimizer.parameters()[1].tensor.item(), c.p, 2e-5);
  EXPECT_EQ(optimizer.steps.item(), 7);
}

TEST(AdamW, DecayOfMatricesOnlySparesVectors) {
  AdamWOptions o{.lr = 0.1, .weight_decay = 0.5, .decay_matrices_only = true};
  AdamW optimizer(parameters_of({ones({2, 2}), ones({2})}), o);
  for (const auto& named : optimizer.parameters())
    named.tensor.sum().backward(zeros({}));
  optimizer.step();
  EXPECT_NEAR(optimizer.parameters()[0].tensor.to_vector()[0], 0.95, 1e-6);
  EXPECT_NEAR(optimizer.parameters()[1].tensor.to_vector()[0], 1, 1e-6);
}

TEST(Optimizers, LearningRateCanChange) {
  Sgd optimizer(parameters_of({scalar(1.0)}), {.lr = 0.1});
  optimizer.set_lr(0.25);
  one_step(optimizer);
  EXPECT_NEAR(optimizer.parameters()[0].tensor.item(), 0.5, 1e-6);
}

TEST(Optimizers, ParametersWithoutGradientStay) {
  auto ps = parameters_of({scalar(1.0), scalar(2.0)});
  AdamW optimizer(ps, {});
  ps[0].tensor.square().backward();
  optimizer.step();
  EXPECT_NE(ps[0].tensor.item(), 1.0);
  EXPECT_EQ(ps[1].tensor.item(), 2.0);
}

TEST(Optimizers, ParametersStayLeaves) {
  auto ps = parameters_of({scalar(1.0)});
  Sgd optimizer(ps, {});
  one_step(optimizer);
  EXPECT_TRUE(ps[0].tensor.is_leaf());
  EXPECT_TRUE(ps[0].tensor.requires_grad());
}

TEST(Optimizers, RefuseNoParametersAndTwoOfOneName) {
  EXPECT_THROW(Sgd({}, {}), Error);
  auto ps = parameters_of({scalar(1.0), scalar(2.0)});
  ps[1].name = ps[0].name;
  EXPECT_THROW(AdamW(ps, {}), Error);
}

TEST(Optimizers, ACompiledStepDoesTheSameAndCompilesOnce) {
  auto build = [] { return parameters_of({tensor({1.5, -2.0, 0.25})}); };
  auto p = build(), q = build();
  AdamW lazy(p, {.lr = 0.1}), compiled(q, {.lr = 0.1});
  auto step = compile([&](AdamW& optimizer) { one_step(optimizer); });
  for (int i = 0; i < 4; ++i) {
    double lr = 0.1 / (i + 1);
    lazy.set_lr(lr);
    compiled.set_lr(lr);
    one_step(lazy);
    step(compiled);
  }
  EXPECT_EQ(step.traces(), 1U);
  auto a = p[0].tensor.to_vector(), b = q[0].tensor.to_vector();
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(a[i], b[i], 1e-6);
  EXPECT_EQ(compiled.steps.item(), 4);
}

struct Classifier {
  nn::Embedding table;
  nn::LayerNorm norm;
  nn::Linear up, down;
  EGRET_FIELDS(table, norm, up, down)
};

TEST(Optimizers, ACompiledStepUpdatesParametersAndStateInPlace) {
  auto build = [] {
    Generator from(3);
    return Classifier{nn::Embedding(11, 16, from), nn::LayerNorm(16), nn::Linear(16, 24, from),
                      nn::Linear(24, 5, from)};
  };
  auto train = [](Classifier& m, AdamW& o, const Tensor& token, const Tensor& target) {
    Tensor y = m.down(gelu(m.up(m.norm(m.table(token)))));
    Tensor loss = mse_loss(y, target);
    o.zero_grad();
    loss.backward();
    o.step();
    return loss;
  };
  Classifier p = build(), q = build();
  AdamW lazy(nn::named_parameters(p), {.lr = 0.1}), compiled(nn::named_parameters(q), {.lr = 0.1});
  Generator random(4);
  const Tensor token = tensor(std::vector<std::int64_t>{1, 5, 3, 5, 10, 0}),
               target = randn({6, 5}, random);
  auto step = compile(train);
  for (int i = 0; i < 3; ++i) {
    const float a = train(p, lazy, token, target).item(),
                b = step(q, compiled, token, target).item();
    EXPECT_NEAR(a, b, 1e-4 * std::abs(a));
  }
  EXPECT_NE(step.explain().find(" 0 copies"), std::string::npos) << step.explain();
}

TEST(ClipGradNorm, ScalesAllGradientsTogether) {
  auto ps = parameters_of({tensor({0.0, 0.0}), scalar(0.0), scalar(1.0)});
  ps[0].tensor.set_grad(tensor({3.0, 0.0}));
  ps[1].tensor.set_grad(scalar(4.0));
  EXPECT_NEAR(clip_grad_norm(ps, 1.0).item(), 5, 1e-5);
  EXPECT_NEAR(ps[0].tensor.grad().to_vector()[0], 0.6, 1e-5);
  EXPECT_NEAR(ps[1].tensor.grad().item(), 0.8, 1e-5);
  EXPECT_NEAR(clip_grad_norm(ps, 10.0).item(), 1, 1e-5);
  EXPECT_NEAR(ps[1].tensor.grad().item(), 0.8, 1e-5);
  EXPECT_FALSE(ps[2].tensor.grad().defined());
  EXPECT_THROW(clip_grad_norm(ps, 0), Error);
  ps[0].tensor.set_grad(zeros({2}));
  ps[1].tensor.set_grad(scalar(0.0));
  clip_grad_norm(ps, 1.0);
  EXPECT_EQ(ps[1].tensor.grad().item(), 0) << "a norm of 0 must not give NaN";
}

} // namespace
} // namespace egret::optim
