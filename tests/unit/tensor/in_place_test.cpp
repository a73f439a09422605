// Results of lazy code that are written over values that nothing needs any more.
#include "egret/borders.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/memory.h"
#include "egret/nn.h"
#include "egret/optim.h"
#include "egret/streams.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace egret {
namespace {

constexpr std::int64_t kSize = 4096;

Tensor numbers(double first) {
  return (arange(kSize).to(DType::F32) * 0.5 + first).eval();
}

// Blocks that the pool has given out meanwhile.
std::uint64_t allocations(const std::function<void()>& work) {
  const Counters before = counters();
  work();
  return (counters() - before).pool_allocations;
}

const void* place_of(const Tensor& a) {
  return view<float>(a).data();
}

TEST(InPlaceLazy, AnUpdateTakesTheMemoryOfTheOldValue) {
  Tensor x = numbers(0);
  const auto step = [&] {
    x = x * 2 - 1;
    x.eval();
  };
  const void* place = place_of(x);
  EXPECT_EQ(allocations(step), 0u) << "the run for which the plan is made";
  EXPECT_EQ(allocations(step), 0u);
  x += 3;
  x.eval();
  EXPECT_EQ(place_of(x), place);
  EXPECT_EQ(x[2].item(), (1.0 * 2 - 1) * 2 - 1 + 3);
  EXPECT_EQ(x[kSize - 1].item(), ((kSize - 1) * 0.5 * 2 - 1) * 2 - 1 + 3);
}

TEST(InPlaceLazy, WithACloneAliveItHasMemoryOfItsOwn) {
  Tensor x = numbers(0);
  const auto step = [&] {
    x = x * 2 - 1;
    x.eval();
  };
  {
    const Tensor before = x.clone();
    EXPECT_EQ(allocations(step), 1u);
    EXPECT_EQ(before[2].item(), 1);
    EXPECT_EQ(x[2].item(), 1);
    EXPECT_EQ(before[10].item(), 5);
    EXPECT_EQ(x[10].item(), 9);
  }
  const Counters before = counters();
  EXPECT_EQ(allocations(step), 0u);
  EXPECT_EQ((counters() - before).compiles, 0u);
  EXPECT_EQ(x[10].item(), 17);
}

TEST(InPlaceLazy, WhatOthersHoldStaysIntact) {
  Tensor x = numbers(0);
  const Tensor row = x[{Slice(4, 8)}], pending = x + 100;
  const auto seen = view<float>(x);
  x = x * 2;
  x.eval();
  EXPECT_EQ(seen[6], 3);
  EXPECT_EQ(row.to_vector(), (std::vector<float>{2, 2.5, 3, 3.5}));
  EXPECT_EQ(pending[6].item(), 103);
  EXPECT_EQ(x[6].item(), 6);
}

TEST(InPlaceLazy, ReadersOfTheOldValueComeFirst) {
  for (int i = 0; i < 2; ++i) {
    Tensor x = numbers(1);
    const Tensor sum = x.sum(), backwards = x.flip(0) * 2;
    x = x * 2;
    eval(x, sum, backwards);
    EXPECT_EQ(sum.item(), kSize * 1.0 + 0.5 * kSize * (kSize - 1) / 2);
    EXPECT_EQ(backwards[0].item(), 2 * (1 + 0.5 * (kSize - 1)));
    EXPECT_EQ(x[3].item(), 5);
  }
}

TEST(InPlaceLazy, TwoMayChangePlaces) {
  Tensor a = numbers(1), b = numbers(-7);
  for (int i = 0; i < 3; ++i) {
    const double x = a[5].item(), y = b[5].item();
    const Tensor old = a * 1;
    a = b + 1;
    b = old - 1;
    eval(a, b, old);
    EXPECT_EQ(a[5].item(), y + 1);
    EXPECT_EQ(b[5].item(), x - 1);
  }
}

TEST(InPlaceLazy, OtherElementsOfTheOldValueAreReadBeforeTheyGo) {
  Tensor x = numbers(0);
  x = x + x.flip(0) + x.mean();
  const double mean = 0.5 * (kSize - 1) / 2;
  x.eval();
  EXPECT_NEAR(x[0].item(), 0.5 * (kSize - 1) + mean, 1e-2);
  EXPECT_NEAR(x[7].item(), 0.5 * (kSize - 1) + mean, 1e-2);
  x = (x.reshape({64, 64}) - x.reshape({64, 64}).transpose()).reshape({kSize});
  EXPECT_NEAR(x.abs().max().item(), 0, 1e-2);
}

TEST(InPlaceLazy, OptimizersUpdateParametersAndStatesWhereTheyAre) {
  Generator random(1);
  nn::Mlp model({64, 128, 8}, random);
  optim::AdamW optimizer(nn::named_parameters(model), {.lr = 1e-2});
  const Tensor x = randn({16, 64}, random).eval(), y = randn({16, 8}, random).eval();
  const auto step = [&] {
    const Tensor loss = mse_loss(model(x), y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    return loss.item();
  };
  const double first = step();
  step();
  std::vector<const void*> places;
  for (const auto& named : optimizer.parameters())
    places.push_back(place_of(named.tensor.detach()));
  for (const auto& [name, mean] : optimizer.exp_avg)
    places.push_back(place_of(mean));
  double last = first;
  for (int i = 0; i < 20; ++i)
    last = step();
  EXPECT_LT(last, first);
  std::size_t at = 0;
  for (const auto& named : optimizer.parameters())
    EXPECT_EQ(place_of(named.tensor.detach()), places[at++]) << named.name;
  for (const auto& [name, mean] : optimizer.exp_avg)
    EXPECT_EQ(place_of(mean), places[at++]) << name;
}

TEST(InPlaceLazy, WhatAGradientMayNeedIsKept) {
  Tensor w = numbers(0).set_requires_grad();
  Tensor x = numbers(1);
  Tensor y = x * w;
  x = x * 2; // of which y's recipe has the old value
  eval(x, y);
  EXPECT_EQ(y[4].item(), 3 * 2);
  y.sum().backward();
  EXPECT_EQ(w.grad()[4].item(), 3);
  EXPECT_EQ(x[4].item(), 6);
}

TEST(InPlaceLazy, ARunThatHasNoMemoryChangesNothing) {
  Tensor x = numbers(1);
  sync();
  trim("cpu");
  struct Unlimited {
    ~Unlimited() { set_memory_limit("cpu", 0); }
  } unlimited;
  set_memory_limit("cpu", memory_stats("cpu").reserved + (1 << 20));
  Tensor wide = x.unsqueeze(0).expand({4096, kSize}) * arange(4096).unsqueeze(1).to(DType::F32);
  x = x * 2;
  EXPECT_THROW(eval(x, wide), Error);
  EXPECT_THROW(eval(x, wide), Error);
  set_memory_limit("cpu", 0);
  eval(x, wide);
  EXPECT_EQ(x[4].item(), 6);
  EXPECT_EQ((wide[{3, 4}].item()), 9);
}

TEST(InPlaceLazy, ThreadsUpdateTheirOwnBesideASharedValue) {
  const Tensor shared = numbers(0);
  std::vector<std::thread> threads;
  std::vector<double> found(4);
  for (std::size_t t = 0; t < found.size(); ++t)
    threads.emplace_back([&, t] {
      Tensor x = shared;
      for (int i = 0; i < 20; ++i) {
        x = x + static_cast<double>(t);
        x.eval();
      }
      found[t] = x[8].item();
    });
  for (std::thread& thread : threads)
    thread.join();
  for (std::size_t t = 0; t < found.size(); ++t)
    EXPECT_EQ(found[t], 4 + 20.0 * static_cast<double>(t));
  EXPECT_EQ(shared[8].item(), 4);
}

/// A row's sum, what is made of it and its gradient are results of one kernel, among whose operands
/// some end there; 15 x 16 is a size at which a result would lie in the memory of one.
TEST(InPlaceLazy, ResultsDoNotLieOverWhatTheKernelStillReads) {
  const auto values = [](const Shape& shape, std::int64_t n, double phase) {
    return sin(arange(n).to(DType::F32) * 1.37 + phase).reshape(shape).eval();
  };
  Tensor x = values({15, 16}, 240, 1);
  const Tensor w = values({16, 16}, 256, 2), y = values({15, 16}, 240, 3),
               z = values({15, 7}, 105, 4);
  x.set_requires_grad();
  const auto step = [](const std::vector<Tensor>& t) -> std::vector<Tensor> {
    const Tensor e = t[3].sum(1);
    const Tensor next = logsumexp(t[0].unsqueeze(2) + t[1], 1) + t[2];
    const Tensor a = where((t[3].select(1, 0) > 0).unsqueeze(1), next, t[0]);
    const Tensor nll = logsumexp(a, 1) - e, loss = nll.mean();
    return {loss, grad(loss, t[0]), nll};
  };
  const std::vector<Tensor> in{x, w, y, z};
  auto apart = compile(step, {.fuse = false, .effort = Effort::None});
  auto fused = compile(step);
  const std::vector<Tensor> expected = apart(in), compiled = fused(in), lazy = step(in);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_LT(abs(compiled[i] - expected[i]).max().item(), 1e-4) << i;
    EXPECT_LT(abs(lazy[i] - expected[i]).max().item(), 1e-4) << i;
  }
}

} // namespace
} // namespace egret
