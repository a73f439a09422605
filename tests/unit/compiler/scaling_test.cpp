// Compile time grows with the size of a graph and not faster. Work is counted in allocations, which
// are the same in every run, where those of code generation are left out: there, kernels are
// bounded.
#include "compiler/pipeline.h"
#include "compiler/prepare_outputs.h"
#include "compiler/proposer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <set>

namespace {
std::atomic<std::uint64_t> allocations{0};
}

void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size > 0 ? size : 1))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace egret::compiler {
namespace {

using ir::Graph;
using ir::NodeId;

constexpr std::int64_t kModelWidth = 8192;

Graph chain(Op op, int length) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {kModelWidth});
  for (int i = 0; i < length; ++i)
    x = g.unary(op, x);
  g.outputs = {x};
  return g;
}

/// Sines of multiples of one array, all of them results.
Graph fan(int count) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {kModelWidth});
  for (int i = 0; i < count; ++i) {
    const NodeId factor = g.broadcast(g.constant(DType::F32, i + 2), {kModelWidth});
    g.outputs.push_back(g.unary(Op::Sin, g.binary(Op::Mul, x, factor)));
  }
  return g;
}

Graph one_value_many_times(int count) {
  Graph g;
  const NodeId y = g.unary(Op::Exp, g.input("x", DType::F32, {kModelWidth}));
  g.outputs.assign(static_cast<std::size_t>(count), y);
  return g;
}

/// Each row scaled by its sum, again and again: two kernels a round that no other can go into.
Graph rounds(int count) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {64, 128});
  for (int i = 0; i < count; ++i) {
    const NodeId sum = g.reshape(g.reduce(Op::ReduceSum, x, {0}), {1, 128});
    x = g.binary(Op::Add, x, g.expand(sum, {64, 128}));
  }
  g.outputs = {x};
  return g;
}

kernel::Target some_target() {
  kernel::Target target;
  target.device = "cpu";
  target.workers = 2;
  target.l2_bytes = 1 << 20;
  return target;
}

std::uint64_t work_of(const Graph& graph) {
  const std::uint64_t before = allocations;
  with_launches(*normal_form(graph), {}, some_target());
  return allocations - before;
}

template <class Make>
void expect_linear(const Make& make, int size) {
  const std::uint64_t once = work_of(make(size)), twice = work_of(make(2 * size));
  EXPECT_LE(static_cast<double>(twice), 2.3 * static_cast<double>(once)) << once << ", " << twice;
}

TEST(Scaling, TwiceTheNodesAreTwiceTheWork) {
  expect_linear([](int n) { return chain(Op::Exp, n); }, 3000);
  expect_linear([](int n) { return chain(Op::Floor, n); }, 3000);
  expect_linear(fan, 1000);
  expect_linear(one_value_many_times, 2000);
  expect_linear(rounds, 600);
}

TEST(Scaling, AKernelsCodeIsBounded) {
  for (const Graph& graph : {chain(Op::Exp, 3000), fan(300), one_value_many_times(500)}) {
    const Partitioned parts = with_launches(*normal_form(graph), {}, some_target());
    double all = 0;
    for (const Group& group : parts.partition.groups) {
      EXPECT_LE(group.flops, kLargestKernel);
      all += group.flops;
    }
    EXPECT_LE(static_cast<double>(parts.partition.groups.size()),
              1 + std::max(2 * all / kLargestKernel, double(graph.outputs.size()) / 8))
        << "but not more kernels than that asks for";
  }
}

TEST(Scaling, PartsOfAChainAreOneKernelsCode) {
  const auto form = normal_form(chain(Op::Exp, 3000));
  const Partitioned parts = with_launches(*form, {}, some_target());
  EXPECT_LE(distinct_regions(form->graph(), parts.regions, some_target()).wanted.size(), 3u);
}

/// Each output has memory of its own, also where they are one value.
TEST(Scaling, AValueThatIsSeveralOutputsIsCopiedOnceForEach) {
  const Graph g = prepare_outputs(one_value_many_times(5));
  EXPECT_EQ(std::set<NodeId>(g.outputs.begin(), g.outputs.end()).size(), 5u);
  EXPECT_EQ(g.size(), 6u);
}

} // namespace
} // namespace egret::compiler
