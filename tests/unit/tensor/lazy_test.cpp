// Recording does nothing but remember; reading computes what is needed and no more.
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/nn.h"
#include "egret/optim.h"
#include "egret/passes.h"
#include "runtime/runtime.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <thread>

namespace egret {
namespace {

TEST(Lazy, AThousandOpsLaunchNothingAndAllocateNothing) {
  const Tensor x = tensor({1.0, 2.0, 3.0});
  const Counters before = counters();
  Tensor y = x;
  for (int i = 0; i < 1000; ++i)
    y = y + x;
  const Counters spent = counters() - before;
  EXPECT_EQ(spent.ops_recorded, 1000u);
  EXPECT_EQ(spent.kernels_launched, 0u);
  EXPECT_EQ(spent.pool_allocations, 0u);
  EXPECT_EQ(spent.device_allocations, 0u);
  EXPECT_EQ(y.shape(), (Shape{3}));
  EXPECT_EQ(y.dtype(), DType::F32);
  EXPECT_FALSE(y.is_materialized());
  EXPECT_EQ(y.to_vector(), (std::vector<float>{1001, 2002, 3003}));
}

TEST(Lazy, MatmulIsExpandMultiplySum) {
  std::vector<float> weights;
  for (int i = 1; i <= 20; ++i)
    weights.push_back(0.1f * static_cast<float>(i));
  const Tensor x = tensor({1.0, 2.0, 3.0, 4.0});
  const Tensor y = matmul(x, tensor(weights, Shape{4, 5}));
  const std::string text = graph_text(y);
  // The vector has no axis of its own in the box.
  const std::size_t product = text.find("f32[5,4] = mul"), sum = text.find("f32[5] = sum");
  EXPECT_NE(product, std::string::npos) << text;
  EXPECT_NE(sum, std::string::npos) << text;
  EXPECT_LT(product, sum) << text;
  EXPECT_EQ(text.find("matmul"), std::string::npos);
  const auto values = y.to_vector();
  for (int i = 0; i < 5; ++i)
    EXPECT_NEAR(values[static_cast<std::size_t>(i)], 11 + i, 1e-5);
}

TEST(Lazy, DerivedOpsRecordPrimitivesAndIntrinsicsOnly) {
  Generator g(1);
  const Tensor x = randn({2, 3, 8}, g), w = ones({8});
  const std::vector<Tensor> derived = {softmax(x),
                                       log_softmax(x),
                                       gelu(x),
                                       gelu(x, Gelu::Tanh),
                                       silu(x),
                                       layer_norm(x, w),
                                       rms_norm(x, w),
                                       scaled_dot_product_attention(x, x, x),
                                       cumsum(x, 1),
                                       argmax(x, 2),
                                       var(x, -1),
                                       one_hot(arange(4), 5),
                                       tril(x),
                                       cat({x, x}, 1),
                                       dropout(x, 0.5, g),
                                       cross_entropy(x, zeros({2, 3}, DType::I64))};
  for (const Tensor& y : derived) {
    const ir::Graph graph = ir::parse_graph(graph_text(y)); // nothing but the table's names parses
    const ir::Graph plain = passes::decompose_intrinsics()(graph);
    for (ir::NodeId id = 0; id < plain.size(); ++id)
      EXPECT_FALSE(info_of(plain[id].op).intrinsic) << info_of(plain[id].op).name;
  }
}

TEST(Lazy, WhatNothingReadsIsNeverScheduled) {
  const Tensor x = tensor({1.0, 2.0});
  const Counters before = counters();
  {
    const Tensor dead = exp(x * 1000);
    (void)dead;
  }
  const Tensor alive = x + 1;
  EXPECT_EQ(alive.to_vector(), (std::vector<float>{2, 3}));
  EXPECT_EQ((counters() - before).kernels_launched, 1u);
}

TEST(Lazy, AnElementwiseChainIsOneKernelWithOneReadAndOneWrite) {
  const Tensor x = full({1 << 12}, 0.25).eval();
  const Counters before = counters();
  const Tensor y = tanh(x * 2 + 1);
  y.eval();
  const Counters spent = counters() - before;
  EXPECT_EQ(spent.kernels_launched, 1u);
  EXPECT_EQ(spent.bytes_read, 4u << 12);
  EXPECT_EQ(spent.bytes_written, 4u << 12);
  EXPECT_EQ(spent.pool_allocations, 1u); // dropped temporaries have no memory
  EXPECT_NEAR(y[0].item(), std::tanh(1.5), 1e-6);
}

TEST(Lazy, AKeptTemporaryAddsOneWrite) {
  const Tensor x = full({1 << 12}, 0.25).eval();
  const Counters before = counters();
  const Tensor inner = x * 3;
  const Tensor y = tanh(inner + 1);
  y.eval();
  const Counters spent = counters() - before;
  EXPECT_EQ(spent.bytes_written, 2u * (4u << 12));
  EXPECT_TRUE(inner.is_materialized());
  EXPECT_FLOAT_EQ(inner[5].item<float>(), 0.75f);
}

TEST(Lazy, TheSameProgramWithOtherTensorsCompilesNothing) {
  auto run = [](double seed, double scale) {
    const Tensor x = full({64}, seed).eval();
    return ((x * scale + 0.3).exp() / 7).sum().item();
  };
  const double first = run(0.75, 3.5);
  const Counters before = counters();
  const double second = run(0.25, 1.5);
  const Counters spent = counters() - before;
  EXPECT_EQ(spent.compiles, 0u);
  EXPECT_EQ(spent.plan_misses, 0u);
  EXPECT_GE(spent.plan_hits, 1u);
  EXPECT_NEAR(first, 64 * std::exp(0.75 * 3.5 + 0.3) / 7, 1e-3);
  EXPECT_NEAR(second, 64 * std::exp(0.25 * 1.5 + 0.3) / 7, 1e-3);
}

TEST(Lazy, ADimThatBecomesOneIsAnotherProgram) {
  auto run = [](std::int64_t n) { return (ones({n, 3}) * ones({1, 3}).eval()).sum().item(); };
  EXPECT_EQ(run(4), 12);
  const Counters before = counters();
  EXPECT_EQ(run(1), 3);
  EXPECT_EQ((counters() - before).plan_misses, 1u);
}

TEST(Lazy, ASteadyLoopAsksTheDeviceForNothing) {
  Tensor x = full({1000}, 1.0).eval();
  auto step = [&] { x = (x * 0.5 + 1).eval(); };
  for (int i = 0; i < 3; ++i)
    step();
  const Counters before = counters();
  for (int i = 0; i < 20; ++i)
    step();
  const Counters spent = counters() - before;
  EXPECT_EQ(spent.device_allocations, 0u);
  EXPECT_EQ(spent.compiles, 0u);
  EXPECT_EQ(spent.kernels_launched, 20u);
}

TEST(Lazy, MemoryGoesWithItsLastReader) {
  const std::uint64_t at_start = counters().bytes_in_use;
  {
    Tensor x = full({1 << 16}, 1.0).eval();
    EXPECT_EQ(counters().bytes_in_use - at_start, 4u << 16);
    Tensor y = x * 2 + 1;
    x = Tensor();
    EXPECT_EQ(counters().bytes_in_use - at_start, 4u << 16); // y still needs it
    y.eval();
    EXPECT_EQ(counters().bytes_in_use - at_start, 4u << 16); // only y
  }
  EXPECT_EQ(counters().bytes_in_use, at_start);
}

TEST(Lazy, DeepChainsNeitherOverflowWhenDroppedNorWhenComputed) {
  const Tensor x = tensor({1.0});
  {
    Tensor dropped = x;
    for (int i = 0; i < 100000; ++i)
      dropped = dropped + x;
  }
  runtime::Runtime::instance().use(runtime::Engine::Reference);
  Tensor y = x;
  for (int i = 0; i < 100000; ++i)
    y = y + x;
  EXPECT_EQ(y.item(), 100001);
  runtime::Runtime::instance().use(runtime::Engine::Compiled);
}

TEST(Lazy, ScalarsAreKnownWithoutAKernel) {
  const Counters before = counters();
  const Tensor s = scalar(2.5);
  EXPECT_EQ(s.item(), 2.5);
  EXPECT_EQ(scalar(7).item<std::int64_t>(), 7);
  EXPECT_TRUE(scalar(true).item<bool>());
  EXPECT_EQ((counters() - before).kernels_launched, 0u);
}

TEST(Lazy, AReshapeOfAValueInMemoryIsThatMemory) {
  const Tensor x = full({6}, 2.0).eval();
  const Counters before = counters();
  const Tensor y = x.reshape({2, 3}).eval();
  EXPECT_EQ((counters() - before).kernels_launched, 0u);
  EXPECT_EQ((counters() - before).pool_allocations, 0u);
  EXPECT_EQ(y[1].sum().item(), 6);
}

TEST(InPlace, AllCopiesOfAHandleSeeAnUpdateAndNothingElseDoes) {
  Tensor x = tensor({1.0, 2.0});
  const Tensor alias = x;
  const Tensor view = x.reshape({2, 1});
  const Tensor earlier = x * 10;
  const Tensor clone = x.clone();
  x += 1;
  EXPECT_EQ(alias.to_vector(), (std::vector<float>{2, 3}));
  EXPECT_EQ(view.to_vector(), (std::vector<float>{1, 2}));
  EXPECT_EQ(earlier.to_vector(), (std::vector<float>{10, 20}));
  EXPECT_EQ(clone.to_vector(), (std::vector<float>{1, 2}));
}

TEST(Lazy, HeldValuesOfWhatAReadComputesAndForgetsComeWithIt) {
  const Tensor x = tensor({1.0, 2.0}), other = tensor({3.0, 4.0});
  Tensor shared = (x * 2).exp(); // forgotten below: nobody holds it
  const Tensor read = shared.sum(), beside = shared * 3, apart = other * 3;
  const Tensor held = x + 1, on_held = held * 2, also_on_held = held * 3;
  shared = Tensor();
  explain(read); // makes the program that reading runs
  const Counters before = counters();
  EXPECT_NEAR(read.item(), std::exp(2.0) + std::exp(4.0), 1e-3);
  EXPECT_EQ((counters() - before).compiles, 0u);
  EXPECT_TRUE(beside.is_materialized());
  EXPECT_FALSE(apart.is_materialized());
  on_held.eval();
  EXPECT_TRUE(held.is_materialized());
  EXPECT_FALSE(also_on_held.is_materialized()); // it costs no more later
}

// What a step reads is a loss; parameters, optimizer and generator go on from step to step unread.
TEST(Lazy, ATrainingLoopWithoutCompileMakesNoPlansAfterItsFirstSteps) {
  for (bool reads_before_backward : {false, true}) {
    Generator g(1);
    nn::Mlp model({8, 16, 4}, g);
    optim::AdamW optimizer(nn::named_parameters(model), {.lr = 0.01});
    auto step = [&] {
      const Tensor x = dropout(randn({4, 8}, g), 0.1, g), y = randint({4}, 0, 4, g);
      const Tensor loss = cross_entropy(model(x), y);
      if (reads_before_backward)
        loss.item();
      optimizer.zero_grad();
      loss.backward();
      optim::clip_grad_norm(optimizer.parameters(), 1.0);
      optimizer.step();
      return loss.item();
    };
    for (int i = 0; i < 3; ++i)
      step();
    Counters before = counters();
    step();
    const std::uint64_t kernels = (counters() - before).kernels_launched;
    before = counters();
    for (int i = 0; i < 5; ++i)
      step();
    const Counters spent = counters() - before;
    EXPECT_EQ(spent.compiles, 0u) << reads_before_backward;
    EXPECT_EQ(spent.kernels_launched, 5 * kernels) << reads_before_backward;
  }
}

TEST(InPlace, UpdatesKeepShapeAndDType) {
  Tensor x = tensor({1, 2, 3});
  x *= 2.6;
  EXPECT_EQ(x.dtype(), DType::I64);
  EXPECT_EQ(x.to_vector<std::int64_t>(), (std::vector<std::int64_t>{2, 5, 7}));
  x.assign(4);
  EXPECT_EQ(x.to_vector<std::int64_t>(), (std::vector<std::int64_t>{4, 4, 4}));
  x /= 2;
  x -= 1;
  EXPECT_EQ(x.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 1, 1}));
}

TEST(InPlace, PartsCanBeAssigned) {
  Tensor x = zeros({3, 4});
  x.assign({1}, 5.0);
  x.assign({Slice::all(), Slice(0, {}, 2)}, tensor({{1.0}, {2.0}, {3.0}}));
  x.assign({2, Slice({}, {}, -1)}, tensor({1.0, 2.0, 3.0, 4.0}));
  EXPECT_EQ(x.to_vector(), (std::vector<float>{1, 0, 1, 0, 2, 5, 2, 5, 4, 3, 2, 1}));
}

TEST(Threads, HandlesMayBeSharedReadAndDroppedByMany) {
  const Tensor x = full({1000}, 1.5).eval();
  std::optional<Tensor> shared = (x * 2 + 1).exp(); // pending, and wanted by all
  std::vector<std::thread> threads;
  std::vector<double> found(4);
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t, mine = *shared]() mutable {
      double total = 0;
      for (int i = 0; i < 20; ++i) {
        const Tensor own = mine * (static_cast<double>(t) + 1);
        total = own.mean().item();
      }
      found[t] = total;
      mine = Tensor();
    });
  shared.reset();
  for (auto& thread : threads)
    thread.join();
  for (std::size_t t = 0; t < 4; ++t)
    EXPECT_NEAR(found[t], std::exp(4.0) * static_cast<double>(t + 1), 1e-2);
}

TEST(Threads, AnErrorLeavesEverythingUsable) {
  const Tensor x = tensor({1.0, 2.0});
  const Tensor y = x + 1;
  EXPECT_THROW(matmul(x, tensor({1.0, 2.0, 3.0})), Error);
  EXPECT_THROW(y.reshape({3}), Error);
  EXPECT_EQ(y.to_vector(), (std::vector<float>{2, 3}));
}

} // namespace
} // namespace egret
