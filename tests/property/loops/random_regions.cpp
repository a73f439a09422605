#include "support/loop_check.h"

namespace egret {
namespace {

TEST(RandomLoops, AreProvedAndComputeTheRegion) {
  testing::LoopCheck check{.seconds = 0.06, .trees = 2};
  testing::check_loops(1, 60, check);
}

TEST(RandomLoops, OfAGpuAreProvedAndComputeTheRegion) {
  testing::LoopCheck check{.seconds = 0.2, .trees = 2};
  testing::check_gpu_loops(1, 20, check);
}

} // namespace
} // namespace egret
