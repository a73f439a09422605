// Gradients of lazy tensors: leaves, seeds, accumulation, and what is kept for them.
#include "egret/grad.h"

#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"

#include <gtest/gtest.h>

#include <cmath>

namespace egret {
namespace {

using Floats = std::vector<float>;

Tensor leaf(const std::vector<double>& values, Shape shape) {
  return tensor(values, shape).set_requires_grad();
}

TEST(Grad, BackwardSumsIntoLeaves) {
  Tensor x = tensor({1.0, 2.0, 3.0}).set_requires_grad();
  const Tensor y = tensor({4.0, 5.0, 6.0});
  const Tensor loss = (x * x * y).sum();
  loss.backward();
  EXPECT_EQ(x.grad().to_vector(), (Floats{8, 20, 36}));
  EXPECT_FALSE(y.grad().defined());
  (x * 2).sum().backward();
  EXPECT_EQ(x.grad().to_vector(), (Floats{10, 22, 38}));
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(x.is_materialized() && x.grad().defined());
}

TEST(Grad, ALossReadBeforeBackwardStillHasItsGradient) {
  Tensor w = tensor({{0.5, -0.5}, {0.25, 1.0}}).set_requires_grad();
  const Tensor x = tensor({{1.0, 2.0}});
  const Tensor loss = tanh(matmul(x, w)).sum();
  EXPECT_EQ(explain(loss).find("its recipe"), std::string::npos);
  const double value = loss.item();
  EXPECT_NE(explain(loss).find("its recipe of"), std::string::npos);
  loss.backward();
  EXPECT_EQ(explain(loss).find("its recipe"), std::string::npos);
  const Tensor again = tanh(matmul(x, w)).sum();
  EXPECT_EQ(again.item(), value);
  again.backward(); // not read before in this form
  const auto total = w.grad().to_vector();
  Tensor fresh = tensor({{0.5, -0.5}, {0.25, 1.0}}).set_requires_grad();
  tanh(matmul(x, fresh)).sum().backward();
  const auto once = fresh.grad().to_vector();
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_FLOAT_EQ(total[i], 2 * once[i]);
}

TEST(Grad, AnIntermediateReadBeforeBackwardDoesNotCutTheGradient) {
  Tensor x = tensor({1.0, 2.0}).set_requires_grad();
  const Tensor h = exp(x);
  h.eval();
  const Tensor loss = (h * h).sum();
  loss.eval();
  loss.backward();
  const auto g = x.grad().to_vector();
  EXPECT_NEAR(g[0], 2 * std::exp(2.0), 1e-4);
  EXPECT_NEAR(g[1], 2 * std::exp(4.0), 1e-3);
}

TEST(Grad, ReluOfAffineBackwardIsAtMostFiveKernels) {
  Generator g(3);
  Tensor a = randn({32, 48}, g).eval(), b = randn({48, 16}, g).eval(), bias = randn({16}, g).eval();
  for (Tensor* t : {&a, &b, &bias})
    t->set_requires_grad();
  const Counters before = counters();
  relu(matmul(a, b) + bias).sum().backward();
  eval({a.grad(), b.grad(), bias.grad()});
  EXPECT_LE((counters() - before).kernels_launched, 5u);
}

TEST(Grad, GradientsOfGradients) {
  const Tensor x = leaf({0.5, 1.5}, {2});
  const Tensor y = (x * x * x).sum();
  const Tensor first = grad(y, x);
  const Tensor second = grad(first.sum(), x);
  const Tensor third = grad(second.sum(), x);
  EXPECT_EQ(first.to_vector<double>(), (std::vector<double>{0.75, 6.75}));
  EXPECT_EQ(second.to_vector<double>(), (std::vector<double>{3, 9}));
  EXPECT_EQ(third.to_vector<double>(), (std::vector<double>{6, 6}));
}

TEST(Grad, InnerValuesSeedsAndIndependentInputs) {
  const Tensor x = leaf({1, 2}, {2}), other = leaf({3}, {1});
  const Tensor h = x * 3;
  const Tensor y = h * h;
  const Tensor seed = tensor(std::vector<double>{1, 10});
  const Tensor outputs[] = {y}, inputs[] = {h, x, other}, seeds[] = {seed};
  const auto g = grad(outputs, inputs, seeds);
  EXPECT_EQ(g[0].to_vector<double>(), (std::vector<double>{6, 120}));
  EXPECT_EQ(g[1].to_vector<double>(), (std::vector<double>{18, 360}));
  EXPECT_EQ(g[2].to_vector<double>(), (std::vector<double>{0}));
}

TEST(Grad, NoGradDetachAndStopping) {
  Tensor x = tensor({2.0}).set_requires_grad();
  {
    NoGrad guard;
    EXPECT_FALSE((x * 2).requires_grad());
    EXPECT_FALSE(grad_enabled());
  }
  EXPECT_TRUE(grad_enabled());
  EXPECT_TRUE((x * 2).requires_grad());
  EXPECT_FALSE(x.detach().requires_grad());
  EXPECT_FALSE((x * 2).detach().requires_grad());
  ((x * 2).detach() * x).sum().backward();
  EXPECT_EQ(x.grad().item(), 4);
  EXPECT_FALSE((x > 1).requires_grad());
  EXPECT_TRUE(x.is_leaf());
  EXPECT_FALSE((x * 2).is_leaf());
}

TEST(Grad, UpdatesOfLeavesKeepThemLeaves) {
  Tensor w = tensor({1.0, 2.0}).set_requires_grad();
  for (int step = 0; step < 3; ++step) {
    w.zero_grad();
    (w * w).sum().backward();
    NoGrad guard;
    w -= w.grad() * 0.25;
  }
  EXPECT_TRUE(w.requires_grad());
  EXPECT_TRUE(w.is_leaf());
  EXPECT_EQ(w.to_vector(), (Floats{0.125, 0.25}));
  {
    NoGrad guard;
    const Tensor other = tensor({5.0, 6.0});
    w.assign(other);
    EXPECT_FALSE(other.requires_grad());
  }
  EXPECT_TRUE(w.requires_grad());
  (w * 3).sum().backward();
  EXPECT_EQ(w.grad().to_vector(), (Floats{3.5, 4})); // on top of that of the last step
}

TEST(Grad, RequiringAGradientDoesNotReachOtherHandles) {
  Tensor x = tensor({1.0});
  const Tensor clone = x.clone(), copy = x;
  x.set_requires_grad();
  EXPECT_TRUE(copy.requires_grad());
  EXPECT_FALSE(clone.requires_grad());
  x.set_requires_grad(false);
  EXPECT_FALSE(copy.requires_grad());
}

TEST(Grad, RecipesGoWhenNoGradientNeedsThem) {
  const std::uint64_t start = counters().bytes_in_use;
  Tensor big = full({1 << 16}, 1.0).eval();
  Tensor w = full({1 << 16}, 2.0).eval().set_requires_grad();
  std::vector<Tensor> losses; // kept by the user, as for a plot
  for (int i = 0; i < 3; ++i) {
    const Tensor input = (big * static_cast<double>(i + 3)).eval();
    const Tensor loss = (w * input).sum();
    loss.backward();
    eval({loss, w.grad()});
    losses.push_back(loss);
    w.zero_grad();
  }
  // big and w, and one number a loss: no input is held by a loss whose gradient is taken.
  EXPECT_LE(counters().bytes_in_use - start, 2u * (4u << 16) + 3 * 64);
}

TEST(Grad, AGradientThatNothingReadsGoesWithItsLeaf) {
  const std::uint64_t start = counters().bytes_in_use;
  {
    Tensor w = full({1 << 12}, 2.0).eval().set_requires_grad();
    (w * w).sum().backward();
    EXPECT_TRUE(w.grad().defined()); // pending: its recipe refers to w, which refers to it
  }
  EXPECT_EQ(counters().bytes_in_use, start);
}

TEST(Grad, ACloneThatRequiresAGradientKeepsItWhenTheFirstHandleGoes) {
  Tensor clone;
  {
    const Tensor first = tensor({3.0}).set_requires_grad();
    clone = first.clone().set_requires_grad();
  }
  (clone * clone).sum().backward();
  ASSERT_TRUE(clone.grad().defined());
  EXPECT_EQ(clone.grad().item(), 6);
}

TEST(Grad, WhatHasTheValueOfALeafIsNoLeaf) {
  Tensor l = tensor({1.0, 2.0}).set_requires_grad();
  using Maker = Tensor (*)(const Tensor&);
  for (const Maker make : {Maker([](const Tensor& t) { return t.clone(); }),
                           Maker([](const Tensor& t) { return t.reshape({2}); }),
                           Maker([](const Tensor& t) { return t.to(DType::F32); }),
                           Maker([](const Tensor& t) { return t.expand({2}); }),
                           Maker([](const Tensor& t) { return t.permute({0}); })}) {
    Tensor k = make(l);
    EXPECT_TRUE(k.requires_grad());
    EXPECT_FALSE(k.is_leaf());
    EXPECT_FALSE(k.grad().defined());
    k += 1;
    k *= 3;
    EXPECT_EQ(k.to_vector(), (Floats{6, 9}));
    EXPECT_EQ(l.to_vector(), (Floats{1, 2}));
    EXPECT_EQ(egret::grad(k.sum(), l).to_vector(), (Floats{3, 3}));
    (k * k).sum().backward();
    EXPECT_EQ(l.grad().to_vector(), (Floats{36, 54}));
    EXPECT_FALSE(k.grad().defined());
    l.zero_grad();
    EXPECT_TRUE(l.is_leaf());
  }
}

TEST(Grad, GradcheckOfWhatDifferentiatesItself) {
  const Tensor x = tensor(std::vector<double>{0.3, -0.7, 1.1});
  const GradCheck inner =
      gradcheck([](const Tensor& t) { return egret::grad(exp(t).sum(), t); }, x);
  EXPECT_TRUE(inner.ok) << inner.first;
  const GradCheck clone = gradcheck(
      [](const Tensor& t) {
        const Tensor own = t.clone().set_requires_grad();
        return egret::grad((own * own * own).sum(), own);
      },
      x);
  EXPECT_TRUE(clone.ok) << clone.first;
  EXPECT_LT(clone.max_error, 1);
  const GradCheck wrong = gradcheck([](const Tensor& t) { return t.detach() * t; }, x);
  EXPECT_FALSE(wrong.ok);
  EXPECT_EQ(wrong.first.rfind("input 0 element 0: analytic ", 0), 0u) << wrong.first;
}

TEST(Grad, GradgradcheckComparesSecondDerivatives) {
  const Tensor x = tensor(std::vector<double>{0.3, -0.7, 1.1});
  const GradCheck right = gradgradcheck([](const Tensor& t) { return tanh(t) * softmax(t); }, x);
  EXPECT_TRUE(right.ok) << right.first;
  // Right gradients whose own gradients lack a part.
  const GradCheck wrong = gradgradcheck([](const Tensor& t) { return t * t.detach() * 2; }, x);
  EXPECT_FALSE(wrong.ok);
  const auto products = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{in[0] * in[1], in[0].sum()}; // the second one is linear
  };
  const GradCheck several = gradgradcheck(products, {x, x + 1});
  EXPECT_TRUE(several.ok) << several.first;
  try {
    gradgradcheck([](const Tensor& t) { return t; }, ones({2}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::DType);
    EXPECT_STREQ(error.what(),
                 "gradgradcheck: inputs must be f64, got f32; convert with to(DType::F64)");
  }
}

TEST(Grad, EveryLayerPassesGradcheck) {
  Generator g(5);
  const Tensor x = randn({2, 3, 4}, g, DType::F64), w = randn({4}, g, DType::F64);
  const Tensor target = tensor({{1, 3, 0}, {2, 0, 3}});
  auto check = [&](const char* name, const std::function<Tensor(const Tensor&)>& f) {
    const GradCheck result = gradcheck(f, x);
    EXPECT_TRUE(result.ok) << name << ": " << result.first;
  };
  check("softmax", [](const Tensor& a) { return softmax(a); });
  check("log_softmax", [](const Tensor& a) { return log_softmax(a, 1); });
  check("logsumexp", [](const Tensor& a) { return logsumexp(a); });
  check("layer_norm", [&](const Tensor& a) { return layer_norm(a, w, w); });
  check("rms_norm", [&](const Tensor& a) { return rms_norm(a, w); });
  check("gelu", [](const Tensor& a) { return gelu(a); });
  check("gelu tanh", [](const Tensor& a) { return gelu(a, Gelu::Tanh); });
  check("silu", [](const Tensor& a) { return silu(a); });
  check("softplus", [](const Tensor& a) { return softplus(a); });
  check("matmul", [](const Tensor& a) { return matmul(a, a.transpose()); });
  check("attention",
        [](const Tensor& a) { return scaled_dot_product_attention(a, a, a, {.causal = true}); });
  check("cross_entropy", [&](const Tensor& a) {
    return cross_entropy(a, target, {.ignore_index = 0, .label_smoothing = 0.1});
  });
  check("var", [](const Tensor& a) { return var(a, {0, 2}); });
  check("slices", [](const Tensor& a) { return a[{Ellipsis{}, Slice({}, {}, -2)}] * 3; });
  check("cat", [](const Tensor& a) { return cat({a, a * 2}, -1) * arange(8).to(DType::F64); });
  check("gather", [&](const Tensor& a) { return gather(a, 2, target.unsqueeze(-1)); });
  check("take", [](const Tensor& a) { return take(a, tensor({3, 3, 0}), 2); });
  check("cumsum", [](const Tensor& a) { return square(cumsum(a, 1)); });
  check("prod", [](const Tensor& a) { return prod(a, 1); });
  check("max", [](const Tensor& a) { return max(a, {1, 2}); });
  check("norm", [](const Tensor& a) { return norm(a, 0); });
  check("where", [](const Tensor& a) { return where(a > 0, a * a, a * 3); });
  check("assign", [](const Tensor& a) {
    Tensor b = zeros({2, 3, 4}, DType::F64);
    b.assign({0}, a[1] * 2);
    return b * a;
  });
}

TEST(Grad, GradcheckFindsAWrongGradient) {
  const Tensor x = tensor(std::vector<double>{1, 2});
  const GradCheck result = gradcheck([](const Tensor& a) { return a * a.detach(); }, x);
  EXPECT_FALSE(result.ok);
  EXPECT_NE(result.first.find("input 0 element 0"), std::string::npos) << result.first;
}

// The exponentials are at most 1 and their sum is at least 1, which the rules can see although no
// gradient goes through the maximum.
TEST(Grad, ThatOfASoftmaxGuardsNothing) {
  auto by = compile([](const Tensor& x, const Tensor& up) {
    const Tensor leaf = x.detach().set_requires_grad();
    using Tensors = std::vector<Tensor>;
    return grad(Tensors{softmax(leaf, -1)}, Tensors{leaf}, Tensors{up})[0];
  });
  const Tensor x = tensor({{0.5, -1.0, 2.0}, {3.0, 3.0, -40.0}});
  const Tensor up = tensor({{1.0, 0.0, -2.0}, {0.5, 1.0, 4.0}});
  const auto values = by(x, up).to_vector();
  EXPECT_EQ(by.graph_text().find("select"), std::string::npos) << by.graph_text();
  const auto p = softmax(x, -1).to_vector(), g = up.to_vector();
  for (std::size_t row = 0; row < 2; ++row) {
    double mixed = 0;
    for (std::size_t i = 3 * row; i < 3 * row + 3; ++i)
      mixed += static_cast<double>(p[i]) * g[i];
    for (std::size_t i = 3 * row; i < 3 * row + 3; ++i)
      EXPECT_NEAR(values[i], p[i] * (g[i] - mixed), 1e-6);
  }
}

} // namespace
} // namespace egret
