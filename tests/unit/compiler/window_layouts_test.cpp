// Windows of images that lie in another order than their results, on a GPU.
#include "backend/cuda/target.h"
#include "compiler/compile.h"
#include "egret/functional.h"
#include "egret/graph.h"
#include "support/null_device.h"

#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

TEST(WindowLayouts, ImagesWithChannelsLastAreCopiedForResultsWithChannelsFirst) {
  egret::Graph g;
  const Tensor x = g.tensor({32, 56, 56, 96}, DType::BF16, "x"),
               w = g.tensor({96, 1, 3, 3}, DType::BF16, "w");
  silu(conv2d(x.permute({0, 3, 1, 2}), w, {}, {.padding = 1, .groups = 96})).retrieve();
  testing::NullDevice device(backend::cuda::known_target(90));
  KernelCache cache;
  const Compiled compiled = compile_graph(ir::parse_graph(g.text()), {}, device, cache);
  ASSERT_EQ(compiled.plan.kernels.size(), 2u) << print(compiled.plan);
  EXPECT_EQ(compiled.plan.kernels[0].schedule.generator, "elementwise") << print(compiled.plan);
  EXPECT_EQ(compiled.plan.kernels[1].schedule.generator, "gpu_points") << print(compiled.plan);
}

} // namespace
} // namespace egret::compiler
