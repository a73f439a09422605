// Trees that searches for a GPU propose, as text that compiles. NVRTC needs no GPU; where it is not
// installed there is nothing to test.
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/render.h"
#include "backend/cuda/target.h"
#include "kernel/families.h"
#include "loops/space.h"
#include "support/loop_options.h"
#include "support/loop_regions.h"
#include "support/nvrtc.h"

#include "egret/error.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

TEST(GpuLoopTexts, CompileWithoutSpills) {
  const auto compiler = testing::nvrtc();
  if (!compiler)
    GTEST_SKIP() << "NVRTC is not installed";
  const kernel::Target target = backend::cuda::known_target(90);
  const auto row_sums = [](ir::Graph& g) {
    return testing::Outputs{g.reduce(Op::ReduceSum, g.input("x", DType::F32, {4096, 1000}), {1})};
  };
  for (const auto& make : std::initializer_list<testing::MakeGraph>{
           testing::product_graph(512, 512, 256), testing::map_graph(1024, 1000), row_sums,
           testing::softmax_graph(512, 1000), testing::narrow_product_graph(1024, 1024, 1024),
           testing::narrow_product_graph(1000, 500, 200),
           testing::narrow_product_graph(64, 64, 16384)}) {
    ir::Graph g;
    g.outputs = make(g);
    const auto regions = testing::regions_of(g, target);
    ASSERT_EQ(regions.size(), 1u);
    const loops::LoopSpace space =
        loops::loop_space(regions[0], target, testing::unhurried({.trees = 3}));
    EXPECT_EQ(space.trees.size(), 3u) << kernel::print(regions[0]);
    for (const loops::LoopTree& one : space.trees) {
      kernel::Schedule schedule;
      schedule.generator = "loops";
      schedule.tree = kernel::loops::to_text(*one.tree, regions[0]);
      const auto lowered = kernel::loops_generator().lower(regions[0], schedule, target);
      ASSERT_TRUE(lowered.ok) << lowered.reason << "\n" << schedule.tree;
      const std::string text = render_cuda(lowered.program, backend::cuda::cuda_target(target));
      const auto cubin = compiler->compile(text, compiler->architecture_for(90, true), {}, "loops");
      for (const auto& k : cubin.kernels)
        EXPECT_EQ(k.spill_stores, 0) << schedule.tree << "\n" << text;
    }
  }
}

} // namespace
} // namespace egret
