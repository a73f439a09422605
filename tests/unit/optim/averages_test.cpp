#include "egret/averages.h"
#include "egret/checkpoint.h"
#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/optim.h"
#include "support/files.h"

#include <gtest/gtest.h>

namespace egret::optim {
namespace {

TEST(Accumulator, ManyBatchesMakeOneStep) {
  Generator g(1);
  nn::Linear parts(3, 2, g);
  nn::Linear whole;
  whole.weight = parts.weight.detach().set_requires_grad();
  whole.bias = parts.bias->detach().set_requires_grad();
  const Tensor x = randn({6, 3}, g), y = randn({6, 2}, g);

  Sgd a(nn::named_parameters(parts), {.lr = 0.1}), b(nn::named_parameters(whole), {.lr = 0.1});
  Accumulator sums(nn::named_parameters(parts));
  auto add = compile([](nn::Linear& m, Accumulator& s, const Tensor& in, const Tensor& out) {
    Tensor loss = mse_loss(m(in), out);
    loss.backward();
    s.add();
    return loss;
  });
  auto step = compile([](Sgd& optimizer, Accumulator& s) {
    s.give();
    optimizer.step();
    optimizer.zero_grad();
  });
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3; ++i)
      add(parts, sums, x.narrow(0, 2 * i, 2), y.narrow(0, 2 * i, 2)).item();
    EXPECT_EQ(sums.count.item(), 3);
    step(a, sums);
    EXPECT_EQ(sums.count.item(), 0);
    b.zero_grad();
    mse_loss(whole(x), y).backward();
    b.step();
  }
  EXPECT_EQ(add.traces(), 1U);
  auto got = parts.weight.to_vector(), want = whole.weight.to_vector();
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-6);
}

TEST(Accumulator, OfNothingGivesZeros) {
  std::vector<NamedTensor> ps = {{"p", ones({2}).set_requires_grad()}};
  Accumulator sums(ps);
  sums.add();
  sums.give();
  EXPECT_EQ(ps[0].tensor.grad().to_vector(), (std::vector<float>{0, 0}));
}

TEST(Ema, FollowsTheParameters) {
  for (bool warmup : {false, true}) {
    std::vector<NamedTensor> ps = {{"p", tensor({1.0, -3.0}).set_requires_grad()}};
    Ema ema(ps, 0.75, warmup);
    std::vector<double> want = {1, -3};
    for (int n = 1; n <= 20; ++n) {
      {
        NoGrad no_grad;
        ps[0].tensor += 1.0;
      }
      ema.update();
      const double decay = warmup ? std::min(0.75, (1.0 + n) / (10.0 + n)) : 0.75;
      want[0] = decay * want[0] + (1 - decay) * (1 + n);
      want[1] = decay * want[1] + (1 - decay) * (-3 + n);
    }
    auto got = ema.averages.at("p").to_vector();
    EXPECT_NEAR(got[0], want[0], 1e-5);
    EXPECT_NEAR(got[1], want[1], 1e-5);
    ema.swap();
    EXPECT_EQ(ps[0].tensor.to_vector(), got);
    EXPECT_TRUE(ps[0].tensor.requires_grad());
    ema.swap();
    EXPECT_EQ(ps[0].tensor.to_vector(), (std::vector<float>{21, 17}));
    EXPECT_EQ(ema.averages.at("p").to_vector(), got);
  }
  EXPECT_THROW(Ema({}, 1.5), Error);
}

} // namespace
} // namespace egret::optim
