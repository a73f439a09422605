// A whole decode step on a GPU is one launch of a recorded graph; on a driver that runs no kernel.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/device.h"
#include "llama.h"
#include "support/cpu_levels.h"
#include "support/cuda_kernels.h"
#include "support/one_launch.h"

#include <gtest/gtest.h>

namespace egret::tool::llama {
namespace {

using egret::testing::ScopedEnvironment;

TEST(DecodeStep, IsOneGraphLaunchThatAllocatesAndCopiesNothing) {
  ScopedEnvironment driver("EGRET_CUDA_DRIVER", EGRET_FAKE_CUDA);
  ScopedEnvironment nvrtc("EGRET_NVRTC", EGRET_FAKE_CUDA);
  egret::testing::TemporaryFolder folder;
  ScopedEnvironment cache("XDG_CACHE_HOME", folder.path().c_str());
  auto& fake = egret::testing::fake_cuda(EGRET_FAKE_CUDA);
  use_device("cuda");
  const Sizes sizes{2, 32, 4, 2, 48, 64, 16, 500000, false, DType::BF16};
  Decoder decoder{make_weights(sizes), make_cache(sizes, 8)};
  const Tensor token = full({1}, std::int64_t(7), DType::I64).eval();
  auto step = compile(&decode);
  Tensor logits;
  auto run = [&] {
    logits = Tensor();
    logits = step(decoder, token);
  };
  const Counters used = egret::testing::expect_one_launch_a_run(fake, run);
  EXPECT_EQ(used.compiles, 0u);
  logits = Tensor();
  decoder = {};
  use_device("cpu");
}

/// Two norms, the products of queries, of keys and values, of what attention gives, and two of the
/// network; attention; and before it one launch that rotates queries and writes to both caches.
TEST(DecodeStep, ALayerIsNineLaunches) {
  ScopedEnvironment driver("EGRET_CUDA_DRIVER", EGRET_FAKE_CUDA);
  ScopedEnvironment nvrtc("EGRET_NVRTC", EGRET_FAKE_CUDA);
  egret::testing::TemporaryFolder folder;
  ScopedEnvironment cache("XDG_CACHE_HOME", folder.path().c_str());
  use_device("cuda");
  const auto kernels = [](std::int64_t layers) {
    const Sizes sizes{layers, 512, 8, 2, 1024, 64, 100, 500000, false, DType::BF16};
    Decoder decoder{make_weights(sizes), make_cache(sizes, 90)};
    const Tensor token = full({1}, std::int64_t(7), DType::I64).eval();
    auto step = compile(&decode);
    step(decoder, token).eval();
    const std::uint64_t before = counters().kernels_launched;
    step(decoder, token).eval();
    // The angles of all layers' rotations, once.
    const std::string plan = step.explain();
    EXPECT_NE(plan.find(" cos sin"), std::string::npos) << plan;
    return counters().kernels_launched - before;
  };
  EXPECT_EQ(kernels(20) - kernels(18), 2u * 9u);
  use_device("cpu");
}

} // namespace
} // namespace egret::tool::llama
