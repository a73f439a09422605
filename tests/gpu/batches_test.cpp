// Several independent small kernels in one grid, in place and with sums.
#include "backend/reference/reference.h"
#include "compiler/compile.h"
#include "gpu/gpu.h"
#include "support/plan_runner.h"
#include "support/region_forms.h"
#include "support/update_graphs.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;
using testing::momentum_update;

void expect_batches(const Graph& g, const std::vector<compiler::OutputSpec>& outputs,
                    std::size_t kernels, int parts) {
  compiler::Options options;
  options.outputs = outputs;
  compiler::KernelCache cache;
  const auto compiled = compiler::compile_graph(g, options, testing::gpu(), cache);
  ASSERT_EQ(compiled.report.kernels.size(), kernels) << compiled.report.text();
  EXPECT_EQ(compiled.report.kernels[0].parts, parts);
  auto inputs = testing::inputs_of(g, 5, false);
  const auto expected = backend::reference::expect(g, inputs, g.outputs);
  const auto actual = testing::run_plan(compiled, g, inputs, &testing::gpu());
  for (std::size_t o = 0; o < actual.size(); ++o) {
    const auto result = backend::reference::compare(actual[o], expected[o], "output");
    EXPECT_TRUE(result.ok) << o << ": " << result.message;
  }
}

TEST(GpuBatches, SmallUpdatesAreOneLaunch) {
  Graph g;
  std::vector<compiler::OutputSpec> outputs;
  for (const Shape& shape :
       {Shape{64}, Shape{10}, Shape{48, 24}, Shape{1}, Shape{12800}, Shape{7, 3}})
    momentum_update(g, outputs, shape, g.input("g", DType::F32, shape));
  expect_batches(g, outputs, 1, 6);
}

// One code with tables of sizes, and more pointers than older drivers take in a launch.
TEST(GpuBatches, HundredsOfUpdatesAreOneCode) {
  Graph g;
  std::vector<compiler::OutputSpec> outputs;
  const int count = testing::gpu().target().parameter_bytes > 4096 ? 300 : 60;
  for (int i = 0; i < count; ++i) {
    const Shape shape{1 + i * 2741 % 5000};
    momentum_update(g, outputs, shape, g.input("g", DType::F32, shape));
  }
  expect_batches(g, outputs, 1, count);
}

TEST(GpuBatches, SumsOfRowsAndColumnsAreOneLaunch) {
  Graph g;
  std::vector<compiler::OutputSpec> outputs;
  const auto sum = [&](const Shape& shape, std::int64_t axis) {
    return g.reduce(Op::ReduceSum, g.input("g", DType::F32, shape), {axis});
  };
  momentum_update(g, outputs, {10}, sum({64, 10}, 0));
  momentum_update(g, outputs, {128}, sum({64, 128}, 0));
  momentum_update(g, outputs, {33}, sum({33, 257}, 1));
  expect_batches(g, outputs, 1, 3);
}

} // namespace
} // namespace egret
