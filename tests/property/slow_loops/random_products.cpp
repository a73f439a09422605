#include "support/loop_products.h"

namespace egret {
namespace {

TEST(RandomProducts, OfAGpuAreProvedAndComputeTheRegionAtLength) {
  testing::check_gpu_products(1000, 100);
}

} // namespace
} // namespace egret
