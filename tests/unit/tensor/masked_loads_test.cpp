// Kernels whose masked loads stand behind stores of a sibling compile: a pass of LLVM 19 ends the
// process there.
#include "egret/functional.h"
#include "egret/streams.h"

#include <gtest/gtest.h>

#include <vector>

namespace egret {
namespace {

TEST(MaskedLoads, BesideAStoreInOneKernel) {
  for (const std::int64_t n : {1, 2, 3, 5, 7}) {
    const Tensor a = arange(2 * n).to(DType::F64).reshape({2, 1, n}).eval();
    const Tensor twice = cat({a, a}, 0), one = ones({1}, DType::F64).detach();
    eval(twice, one);
    const auto values = twice.to_vector<double>();
    for (std::int64_t i = 0; i < 4 * n; ++i)
      EXPECT_EQ(values[static_cast<std::size_t>(i)], static_cast<double>(i % (2 * n))) << n;
    EXPECT_EQ(one.item(), 1);
  }
}

} // namespace
} // namespace egret
