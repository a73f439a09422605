// Trials on a GPU: while one goes on, the host's cores compile those that come next.
#include "compiler/trial.h"

#include "support/bad_kernels.h"
#include "support/cuda_kernels.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace egret::backend::cuda {
namespace {

using egret::testing::axpb_program;
using egret::testing::axpb_text;
using egret::testing::fake_cuda;
using egret::testing::FakeCuda;

TEST(CudaTrials, ProgramsAreCompiledAhead) {
  FakeCuda& fake = fake_cuda(EGRET_FAKE_CUDA);
  const auto device =
      make_cuda_device(0, {axpb_text, {{EGRET_FAKE_CUDA}, {EGRET_FAKE_CUDA}}, nullptr});
  const auto before = fake.compilations;
  compiler::TrialRoom room(*device);
  compiler::Trial trial = egret::testing::good_trial(egret::testing::test_targets().front());
  trial.verify = false;
  trial.repetitions = 0;
  trial.program = axpb_program(128);
  trial.ahead = {axpb_program(64), axpb_program(256)};
  EXPECT_TRUE(room.run(trial).ok());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (fake.compilations - before < 3 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(fake.compilations - before, 3u);
  trial.ahead.clear();
  for (const int threads : {64, 256}) {
    trial.program = axpb_program(threads);
    EXPECT_TRUE(room.run(trial).ok());
  }
  EXPECT_EQ(fake.compilations - before, 3u);
}

} // namespace
} // namespace egret::backend::cuda
