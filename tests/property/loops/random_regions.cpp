#include "support/loop_check.h"

namespace egret {
namespace {

loops::LoopOptions few() {
  return testing::unhurried({.rows = 2000, .skeletons = 2, .points = 1000, .draws = 8});
}

TEST(RandomLoops, AreProvedAndComputeTheRegion) {
  testing::LoopCheck check{.options = few(), .trees = 2};
  testing::check_loops(1, 60, check);
}

TEST(RandomLoops, OfAGpuAreProvedAndComputeTheRegion) {
  testing::LoopCheck check{.options = few(), .trees = 2};
  testing::check_gpu_loops(1, 20, check);
}

} // namespace
} // namespace egret
