// Trials on a GPU: while one goes on, the host's cores compile those that come next.
#include "compiler/candidate_measurement.h"

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
  const auto before = fake.compilations_now();
  compiler::CandidateMeasurer measurer(*device);
  compiler::CandidateMeasurement measurement =
      egret::testing::good_trial(egret::testing::test_targets().front());
  measurement.verify = false;
  measurement.repetitions = 0;
  measurement.program = axpb_program(128);
  measurement.ahead = {axpb_program(64), axpb_program(256)};
  EXPECT_TRUE(measurer.run(measurement).ok());
  while (fake.compilations_now() - before < 3) // however long a busy machine takes
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(fake.compilations_now() - before, 3u);
  measurement.ahead.clear();
  for (const int threads : {64, 256}) {
    measurement.program = axpb_program(threads);
    EXPECT_TRUE(measurer.run(measurement).ok());
  }
  EXPECT_EQ(fake.compilations_now() - before, 3u);
}

} // namespace
} // namespace egret::backend::cuda
