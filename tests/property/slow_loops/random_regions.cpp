#include "support/loop_check.h"

namespace egret {
namespace {

TEST(RandomLoops, AreProvedAndComputeTheRegionAtLength) {
  testing::LoopCheck check;
  testing::check_loops(1000, 500, check);
}

TEST(RandomLoops, OfAGpuAreProvedAndComputeTheRegionAtLength) {
  testing::LoopCheck check;
  testing::check_gpu_loops(1000, 200, check);
}

} // namespace
} // namespace egret
