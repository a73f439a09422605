// Bad kernels on the GPU end their worker and nothing else.
#include "compiler/measurement_process.h"

#include "gpu/gpu.h"
#include "support/bad_kernels.h"

#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

using egret::testing::good_trial;
using egret::testing::spoil_loops;
using egret::testing::spoil_stores;
using egret::testing::spoil_values;
using Reason = MeasurementResult::Reason;
using State = MeasurementResult::State;

MeasurementProcessOptions options(double timeout = 60) {
  return {"cuda:0", {}, timeout};
}
CandidateMeasurement measurement() {
  return good_trial(egret::testing::gpu().target());
}

TEST(GpuWorker, VerifiesAndTimesAGoodKernel) {
  MeasurementProcess worker(options());
  CandidateMeasurement good = measurement();
  good.repetitions = 5;
  const MeasurementResult outcome = worker.run(good);
  EXPECT_EQ(outcome.state, State::Timed) << outcome.message;
  EXPECT_EQ(outcome.checked, 1000);
  EXPECT_EQ(outcome.seconds.size(), 5u);
}

TEST(GpuWorker, WrongValuesAndWritesBesideBuffersAreRejected) {
  MeasurementProcess worker(options());
  CandidateMeasurement wrong = measurement();
  spoil_values(wrong);
  EXPECT_EQ(worker.run(wrong).reason, Reason::Wrong);
  CandidateMeasurement beside = measurement();
  spoil_stores(beside, 16);
  const MeasurementResult outcome = worker.run(beside);
  EXPECT_EQ(outcome.reason, Reason::Wrong) << outcome.message;
}

TEST(GpuWorker, AnIllegalAccessEndsTheWorkerOnly) {
  MeasurementProcess worker(options());
  CandidateMeasurement bad = measurement();
  spoil_stores(bad, std::int64_t{1} << 40);
  const MeasurementResult outcome = worker.run(bad);
  EXPECT_EQ(outcome.reason, Reason::Crash) << outcome.message;
  EXPECT_NE(outcome.message.find("illegal memory access"), std::string::npos) << outcome.message;
  EXPECT_EQ(worker.run(measurement()).state, State::Verified);
  EXPECT_EQ(worker.processes_started(), 2);
}

TEST(GpuWorker, AKernelThatDoesNotEndIsAHang) {
  MeasurementProcess worker(options(8));
  CandidateMeasurement endless = measurement();
  spoil_loops(endless);
  const MeasurementResult outcome = worker.run(endless);
  EXPECT_EQ(outcome.reason, Reason::Hang) << outcome.message;
  EXPECT_EQ(MeasurementProcess(options()).run(measurement()).state, State::Verified);
}

} // namespace
} // namespace egret::compiler
