// Threads whose values have nothing to do with each other, and those that share some.
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "tensor/engine.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace egret {
namespace {

using detail::Access;
using detail::EngineLock;

template <class F>
void on_another_thread(F&& f) {
  std::thread(std::forward<F>(f)).join();
}

// Would never end if a read had to wait for the thread that looks something up in its own stream.
TEST(Threads, ReadWhileAnotherOneLooksAtItsOwnValues) {
  std::vector<float> values;
  float slope = 0;
  const EngineLock lock;
  on_another_thread([&] {
    Tensor x = ones({4}).eval();
    for (int i = 0; i < 3; ++i)
      x = (x * 2 + 1).eval();
    values = x.to_vector();
    Tensor w = tensor({3.0f});
    w.set_requires_grad();
    (w * w).sum().backward();
    slope = w.grad().to_vector()[0];
  });
  EXPECT_EQ(values, std::vector<float>(4, 15.0f));
  EXPECT_EQ(slope, 6.0f);
}

TEST(Threads, TakeValuesOfAnotherOneHomeWhenTheyEvaluateThem) {
  const Tensor x = ones({4}).eval();
  Tensor y = x * 2; // recorded here
  const detail::NodePtr node = Access::node(y, "test");
  const detail::Stream* const here = &detail::this_stream();
  EXPECT_EQ(node->home.load(), here);
  std::thread thread;
  std::vector<float> first, second;
  detail::Stream* there = nullptr;
  on_another_thread([&] {
    first = y.to_vector();
    there = &detail::this_stream();
    EXPECT_EQ(node->home.load(), there);
  });
  EXPECT_NE(there, here);
  EXPECT_EQ(first, std::vector<float>(4, 2.0f));
  EXPECT_EQ((y + x).to_vector(), std::vector<float>(4, 3.0f)); // and back
  EXPECT_EQ(node->home.load(), here);
}

TEST(Threads, AReadComputesWhatAnotherOneHasMadeOfAValueThatIsForgotten) {
  const Tensor x = ones({4}).eval();
  Tensor beside, read;
  {
    Tensor between = exp(x);
    on_another_thread([&] { beside = between + 1; });
    read = between * 3;
  }
  read.eval();
  EXPECT_TRUE(beside.is_materialized());
}

TEST(Threads, UpdateASharedValueInPlaceAndReadIt) {
  constexpr int kThreads = 4, kUpdates = 100;
  Tensor sum = zeros({8}).eval();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      Tensor own = ones({8}).eval();
      for (int i = 0; i < kUpdates; ++i) {
        sum += own;
        own = (own * 1).eval();
        EXPECT_GE(sum.to_vector()[0], 1.0f);
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(sum.to_vector(), std::vector<float>(8, kThreads * kUpdates));
}

TEST(Threads, AreAllCounted) {
  const Counters before = counters();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([] {
      Tensor x = ones({5}).eval();
      for (int i = 0; i < 10; ++i)
        x = exp(x * 0.0);
      x.eval();
    });
  for (std::thread& thread : threads)
    thread.join();
  const Counters work = counters() - before;
  EXPECT_GE(work.ops_recorded, 3u * 20u);
  EXPECT_GE(work.kernels_launched, 3u);
  EXPECT_EQ(work.plan_explorations + work.plan_hits, 6u);
}

} // namespace
} // namespace egret
