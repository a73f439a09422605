// What a loop of lazy operations keeps from round to round, and what it has to let go.
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/nn.h"
#include "egret/optim.h"
#include "egret/streams.h"
#include "runtime/plan_store.h"
#include "tensor/derivatives.h"
#include "tensor/node.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace egret {
namespace {

const ir::Node* form_of(const Tensor& t) {
  return detail::Access::handle(t)->node()->shared_form.get();
}

struct Net {
  explicit Net(Generator g) : a(8, 16, g), b(16, 4, g) {}
  nn::Linear a, b;
  EGRET_FIELDS(a, b)
};

// Training of a small network without compile().
struct Loop {
  Net net{Generator(1)};
  optim::Sgd optimizer{nn::named_parameters(net), {.lr = 0.01}};
  Tensor x = ones({4, 8}).eval(), y = zeros({4, 4}).eval();
  double step() {
    const Tensor loss = mse_loss(net.b(relu(net.a(x))), y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    return loss.item();
  }
};

TEST(SteadyLoop, AnUpdatedValueHasTheFormOfTheOneBefore) {
  Loop loop;
  loop.step();
  std::vector<const ir::Node*> before;
  for (const NamedTensor& p : loop.optimizer.parameters())
    before.push_back(form_of(p.tensor));
  for (int i = 0; i < 3; ++i)
    loop.step();
  std::vector<const ir::Node*> after;
  for (const NamedTensor& p : loop.optimizer.parameters())
    after.push_back(form_of(p.tensor));
  EXPECT_EQ(after, before);
}

TEST(SteadyLoop, OperationsThatDifferInOneAttributeHaveOtherForms) {
  const Tensor x = tensor({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}});
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(x.sum({0}).to_vector(), (std::vector<float>{5, 7, 9}));
    EXPECT_EQ(x.sum({1}).to_vector(), (std::vector<float>{6, 15}));
    EXPECT_EQ(x.narrow(1, 0, 2).to_vector(), (std::vector<float>{1, 2, 4, 5}));
    EXPECT_EQ(x.narrow(1, 1, 2).to_vector(), (std::vector<float>{2, 3, 5, 6}));
    EXPECT_EQ(x.to(DType::I64).dtype(), DType::I64);
    EXPECT_EQ(x.to(DType::F64).dtype(), DType::F64);
  }
  EXPECT_EQ(form_of(x + x), form_of(x + x));
  EXPECT_NE(form_of(x + x), form_of(x * x));
  EXPECT_NE(form_of(x.sum({0})), form_of(x.sum({1})));
}

TEST(SteadyLoop, DerivativesAreFoundByOtherFormsOfTheSameOperations) {
  Loop one;
  one.step();
  const std::uint64_t derived = detail::recipes_derived();
  Loop other;
  std::thread([&] { other.step(); }).join(); // forms are a thread's own
  EXPECT_EQ(detail::recipes_derived(), derived);
}

TEST(SteadyLoop, APlanThatWasEvictedIsMadeAgain) {
  Tensor x = full({40}, 0.5).eval();
  const auto step = [&] { x = (x * 0.5 + 0.25).eval(); };
  for (int i = 0; i < 4; ++i)
    step();
  Counters before = counters();
  step();
  EXPECT_EQ((counters() - before).compiles, 0u);
  set_plan_memory(1); // all of them go, also those that this thread keeps for its loop
  before = counters();
  step();
  EXPECT_EQ((counters() - before).compiles, 1u);
  set_plan_memory(runtime::PlanStore::kDefaultLimit);
  step();
  EXPECT_EQ(x.to_vector(), std::vector<float>(40, 0.5f));
}

TEST(SteadyLoop, ThreadsTrainTheirOwnModelsAsOneThreadDoes) {
  const auto losses = [] {
    Loop loop;
    std::vector<double> all;
    for (int i = 0; i < 20; ++i)
      all.push_back(loop.step());
    return all;
  };
  const std::vector<double> expected = losses();
  std::vector<std::vector<double>> found(4);
  std::vector<std::thread> threads;
  for (auto& own : found)
    threads.emplace_back([&] { own = losses(); });
  for (std::thread& thread : threads)
    thread.join();
  for (const auto& own : found)
    EXPECT_EQ(own, expected);
}

// More threads than parts of the counters, at once and one after the other.
TEST(SteadyLoop, OperationsOfAllThreadsAreCounted) {
  const Tensor x = ones({4}).eval();
  const Counters before = counters();
  for (int round = 0; round < 2; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 40; ++t)
      threads.emplace_back([&] {
        Tensor y = x;
        for (int i = 0; i < 100; ++i)
          y = y + x;
      });
    for (std::thread& thread : threads)
      thread.join();
  }
  EXPECT_EQ((counters() - before).ops_recorded, 2u * 40 * 100);
}

TEST(SteadyLoop, AnOperationOfAnotherThreadLeavesTheQueueOfItsOwn) {
  const QueueLimits limits = queue_limits();
  set_queue_limits({.operations = 64, .bytes = limits.bytes});
  const Tensor x = ones({4}).eval();
  const Counters before = counters();
  for (int i = 0; i < 20; ++i) {
    Tensor y = x;
    for (int j = 0; j < 32; ++j)
      y = y + x;
    std::thread([gone = std::move(y)]() mutable { gone = Tensor(); }).join();
  }
  EXPECT_EQ((counters() - before).kernels_launched, 0u); // at most 32 wait at any time
  set_queue_limits(limits);
}

} // namespace
} // namespace egret
