#include "support/loop_products.h"

namespace egret {
namespace {

TEST(RandomProducts, OfAGpuAreProvedAndComputeTheRegion) {
  testing::check_gpu_products(1, 10);
}

} // namespace
} // namespace egret
