#include "egret/autocast.h"
#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/mixed.h"
#include "egret/models.h"
#include "support/files.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace egret::optim {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Autocast, ProductsAreLowAndReductionsStayWide) {
  Generator g(1);
  const Tensor x = randn({4, 8}, g), w = randn({3, 8}, g), b = randn({3}, g);
  const Tensor half = x.to(DType::F16);
  for (DType low : {DType::BF16, DType::F16}) {
    Autocast scope(low);
    EXPECT_EQ(matmul(x, w.transpose()).dtype(), low);
    EXPECT_EQ(linear(x, w, b).dtype(), low);
    EXPECT_EQ(scaled_dot_product_attention(x, x, x).dtype(), low);
    EXPECT_EQ(conv2d(zeros({1, 2, 4, 4}), zeros({3, 2, 3, 3}), zeros({3})).dtype(), low);
    EXPECT_EQ(group_norm(half.unsqueeze(-1), 2).dtype(), DType::F32);
    EXPECT_EQ(matmul(x.to(DType::F64), w.to(DType::F64).transpose()).dtype(), DType::F64);
    EXPECT_EQ(softmax(half).dtype(), DType::F32);
    EXPECT_EQ(sum(half).dtype(), DType::F32);
    EXPECT_EQ(mean(half).dtype(), DType::F32);
    EXPECT_EQ(layer_norm(half, ones({8})).dtype(), DType::F32);
    EXPECT_EQ(relu(half).dtype(), DType::F16) << "maps take what they get";
    EXPECT_EQ((x + linear(x, w, b).sum(-1, true)).dtype(), DType::F32);
    {
      Autocast off(DType::F32);
      EXPECT_EQ(matmul(x, w.transpose()).dtype(), DType::F32);
    }
    EXPECT_EQ(autocast_type(), low);
  }
  EXPECT_EQ(autocast_type(), std::nullopt);
  EXPECT_EQ(softmax(half).dtype(), DType::F16);
  EXPECT_EQ(sum(half).dtype(), DType::F16);
  EXPECT_THROW(Autocast(DType::I32), Error);
}

TEST(Autocast, ValuesAreThoseOfRoundedOperands) {
  Generator g(1);
  const Tensor x = randn({4, 8}, g), w = randn({3, 8}, g);
  auto want = matmul(x.to(DType::BF16), w.to(DType::BF16).transpose()).to_vector();
  Autocast scope(DType::BF16);
  EXPECT_EQ(linear(x, w).to_vector(), want);
}

TEST(Autocast, ACompiledFunctionIsTracedForEachScope) {
  auto f = compile([](const Tensor& a, const Tensor& b) { return matmul(a, b); });
  const Tensor a = ones({2, 2});
  EXPECT_EQ(f(a, a).dtype(), DType::F32);
  {
    Autocast scope(DType::BF16);
    EXPECT_EQ(f(a, a).dtype(), DType::BF16);
    EXPECT_NE(f.last_report().find("same"), 0U);
  }
  EXPECT_EQ(f(a, a).dtype(), DType::F32);
  EXPECT_EQ(f.traces(), 2U);
}

TEST(Autocast, GptTrainsAsInF32) {
  auto losses = [](DType products) {
    Generator g(3);
    models::Gpt model({.vocabulary = 11, .context = 8, .layers = 2, .width = 16, .heads = 2}, g);
    AdamW optimizer(nn::named_parameters(model), {.lr = 3e-3});
    GradScaler scaler;
    const Tensor tokens = randint({4, 9}, 0, 11, g);
    auto step = compile([products](models::Gpt& m, AdamW& o, GradScaler& s, const Tensor& t) {
      Tensor loss;
      {
        Autocast scope(products);
        loss = cross_entropy(m(t.narrow(1, 0, 8)), t.narrow(1, 1, 8));
      }
      o.zero_grad();
      s.scaled(loss).backward();
      s.step(o);
      return loss;
    });
    std::vector<float> curve;
    for (int i = 0; i < 12; ++i)
      curve.push_back(step(model, optimizer, scaler, tokens).item<float>());
    EXPECT_EQ(scaler.skipped.item(), 0);
    for (const auto& [name, p] : nn::named_parameters(model))
      EXPECT_EQ(p.dtype(), DType::F32) << name;
    return curve;
  };
  auto wide = losses(DType::F32), bf16 = losses(DType::BF16), f16 = losses(DType::F16);
  EXPECT_LT(wide.back(), wide.front() - 0.3F);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    EXPECT_NEAR(bf16[i], wide[i], 0.02) << i;
    EXPECT_NEAR(f16[i], wide[i], 0.005) << i;
  }
  EXPECT_NE(bf16, wide);
}

struct One {
  std::vector<NamedTensor> parameters = {{"p", tensor({1.0, 2.0}).set_requires_grad()}};
  AdamW optimizer{parameters, {.lr = 0.1}};
  void gradient(std::vector<float> values) { parameters[0].tensor.set_grad(tensor(values)); }
};

TEST(GradScaler, DividesAndSteps) {
  One scaled, plain;
  GradScaler scaler({.scale = 1024});
  EXPECT_EQ(scaler.scaled(tensor({2.0}).to(DType::F16)).item(), 2048);
  for (int i = 0; i < 3; ++i) {
    scaled.gradient({512, -256});
    plain.gradient({0.5, -0.25});
    scaler.step(scaled.optimizer);
    plain.optimizer.step();
  }
  EXPECT_EQ(scaled.parameters[0].tensor.to_vector(), plain.parameters[0].tensor.to_vector());
  EXPECT_EQ(scaled.optimizer.steps.item(), 3);
}

TEST(GradScaler, SkipsStepsThatOverflowAndLowersTheScale) {
  One one;
  GradScaler scaler({.scale = 8});
  one.gradient({8, 8});
  scaler.step(one.optimizer);
  auto state = [&] {
    std::vector<std::vector<float>> all;
    for (auto& named : named_tensors(one.optimizer))
      all.push_back(named.tensor.to_vector());
    all.push_back(one.parameters[0].tensor.to_vector());
    return all;
  };
  const auto before = state();
  for (float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    one.gradient({1, bad});
    scaler.step(one.optimizer);
    EXPECT_EQ(state(), before);
  }
  EXPECT_EQ(scaler.scale.item(), 1);
  EXPECT_EQ(scaler.skipped.item(), 3);
  EXPECT_EQ(scaler.good.item(), 0);
  one.gradient({1, 1});
  scaler.step(one.optimizer);
  EXPECT_NE(state(), before);
}

TEST(GradScaler, RaisesTheScaleAfterAnInterval) {
  One one;
  GradScaler scaler({.scale = 4, .growth_interval = 3});
  std::vector<double> scales;
  for (int i = 0; i < 7; ++i) {
    one.gradient({1, i == 1 ? kInfinity : 1});
    scaler.step(one.optimizer);
    scales.push_back(scaler.scale.item());
  }
  EXPECT_EQ(scales, (std::vector<double>{4, 2, 2, 2, 4, 4, 4}));
}

TEST(GradScaler, GradientsMayBeClippedInBetween) {
  One one;
  GradScaler scaler({.scale = 16});
  one.gradient({48, 64});
  scaler.unscale(one.parameters);
  EXPECT_NEAR(clip_grad_norm(one.parameters, 1).item(), 5, 1e-5);
  scaler.step(one.optimizer);
  EXPECT_NEAR(one.parameters[0].tensor.grad().to_vector()[0], 0.6, 1e-5);
}

TEST(GradScaler, RefusesNumbersThatCannotBe) {
  EXPECT_THROW(GradScaler({.scale = 0}), Error);
  EXPECT_THROW(GradScaler({.backoff = 1}), Error);
  EXPECT_THROW(GradScaler({.growth_interval = 0}), Error);
}

} // namespace
} // namespace egret::optim
