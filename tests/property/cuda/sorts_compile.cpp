// Sorts, selections and scatters in each of their ways: the text of their kernels compiles for the
// GPUs there are, without spills. NVRTC needs no GPU; where it is not installed there is nothing to
// test.
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/render.h"
#include "backend/cuda/target.h"
#include "compiler/join_scatters.h"
#include "egret/functional.h"
#include "egret/graph.h"
#include "support/nvrtc.h"
#include "support/region_runner.h"

#include "egret/error.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace egret {
namespace {

using backend::cuda::Nvrtc;
using ir::Graph;

Graph order(DType type, const Shape& shape, std::int64_t count) {
  Graph g;
  const auto axis = std::int64_t(shape.size()) - 1;
  g.outputs = {g.argsort(g.input("x", type, shape), axis, count)};
  return g;
}

Graph scattered(Op op, DType type, const Shape& data, std::int64_t updates) {
  Graph g;
  Shape rows = data;
  rows[0] = updates;
  g.outputs = {g.scatter(op, g.input("data", type, data), g.input("index", DType::I64, {updates}),
                         g.input("updates", type, rows), 0)};
  return g;
}

/// Scatters along an axis, each of what the one before has left.
Graph scattered_lines(const Shape& data, const Shape& updates, std::int64_t axis, int times) {
  egret::Graph g;
  Tensor sum = g.tensor(data, DType::F32, "data");
  for (int i = 0; i < times; ++i)
    sum = scatter_add(sum, axis, g.tensor(updates, DType::I64, fmt::format("index{}", i)),
                      g.tensor(updates, DType::F32, fmt::format("updates{}", i)));
  sum.retrieve();
  return compiler::join_scatters(ir::parse_graph(g.text()), testing::test_gpu());
}

TEST(CudaSorts, TextCompilesWithoutSpills) {
  const auto compiler = testing::nvrtc();
  if (!compiler)
    GTEST_SKIP() << "NVRTC is not installed";
  kernel::Target target = testing::test_gpu();
  target.workers = 132;
  target.block_shared_bytes = 227 << 10;
  const Graph graphs[] = {order(DType::I32, {1 << 20}, 1 << 20),
                          order(DType::U64, {3, 70000}, 70000),
                          order(DType::I16, {4096, 1000}, 1000),
                          order(DType::I16, {4096, 3000}, 3000),
                          order(DType::U32, {16, 128256}, 50),
                          order(DType::I64, {100000, 16}, 16),
                          order(DType::I64, {2000, 300}, 300),
                          order(DType::U32, {746304}, 11),
                          order(DType::U16, {57, 216232}, 30),
                          order(DType::U32, {3984}, 1),
                          order(DType::I64, {5000, 40}, 3),
                          scattered(Op::ScatterAdd, DType::I32, {256}, 1 << 24),
                          scattered(Op::ScatterAdd, DType::I64, {4096}, 1 << 23),
                          scattered(Op::ScatterMax, DType::I64, {1 << 20}, 1 << 20),
                          scattered(Op::ScatterAdd, DType::F32, {39176}, 1 << 18),
                          scattered(Op::ScatterMax, DType::F64, {39176}, 1 << 18),
                          scattered(Op::ScatterAdd, DType::F32, {1 << 23}, 424),
                          scattered(Op::ScatterAdd, DType::F32, {50257, 768}, 1 << 14),
                          scattered(Op::ScatterAdd, DType::F32, {4096, 128}, 1 << 16),
                          scattered(Op::ScatterAdd, DType::F64, {50257, 768}, 1 << 14),
                          scattered(Op::ScatterMax, DType::BF16, {64, 24}, 1 << 18),
                          scattered(Op::ScatterSet, DType::F32, {1 << 20}, 1 << 20),
                          scattered_lines({2048, 1024}, {2048, 1024}, 0, 1),
                          scattered_lines({2048, 1024}, {2048, 1024}, 1, 1),
                          scattered_lines({4, 16, 9216}, {4, 16, 6400}, 2, 4)};
  const backend::cuda::CudaTarget targets[] = {{80, false}, {90, true}};
  for (const Graph& g : graphs)
    for (const kernel::Region& region : testing::regions_of(g, target)) {
      const kernel::Chosen chosen = kernel::lower_greedily(region, target);
      for (const auto& t : targets) {
        const std::string text = backend::cuda::render_cuda(chosen.program, t);
        const auto cubin = compiler->compile(
            text, compiler->architecture_for(t.capability, t.specific), {}, "sorts");
        for (const auto& k : cubin.kernels)
          EXPECT_EQ(k.spill_stores, 0) << to_string(chosen.schedule) << "\n" << text;
      }
    }
}

} // namespace
} // namespace egret
