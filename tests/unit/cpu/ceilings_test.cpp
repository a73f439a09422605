#include "backend/cpu/ceilings.h"

#include "support/cpu_levels.h"

#include <gtest/gtest.h>

namespace egret::backend::cpu {
namespace {

TEST(Ceilings, AreFiguresOfAMachineThatExists) {
  Device& device = egret::testing::cpu_at("native");
  Ceiling fma = peak_fma_f32(device, 1);
  EXPECT_GT(fma.median, 1e8);
  EXPECT_LT(fma.best, 1e13) << "the multiply-adds were optimized away";
  for (bool streaming : {false, true}) {
    Ceiling copy = copy_bandwidth(device, 1 << 20, streaming, 1);
    EXPECT_GT(copy.median, 1e7);
    EXPECT_LT(copy.best, 1e13) << "nothing was copied";
  }
  Ceiling read = read_bandwidth(device, 1 << 20);
  EXPECT_GE(read.best, read.median);
  EXPECT_LT(read.best, 1e13) << "nothing was read";
}

} // namespace
} // namespace egret::backend::cpu
