// Bad kernels on the GPU end their worker and nothing else.
#include "compiler/worker.h"

#include "gpu/gpu.h"
#include "support/bad_kernels.h"

#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

using egret::testing::good_trial;
using egret::testing::spoil_loops;
using egret::testing::spoil_stores;
using egret::testing::spoil_values;
using Reason = Verdict::Reason;
using State = Verdict::State;

WorkerOptions options(double timeout = 60) {
  return {"cuda:0", {}, timeout};
}
Trial trial() {
  return good_trial(egret::testing::gpu().target());
}

TEST(GpuWorker, VerifiesAndTimesAGoodKernel) {
  Worker worker(options());
  Trial good = trial();
  good.repetitions = 5;
  const Verdict verdict = worker.run(good);
  EXPECT_EQ(verdict.state, State::Timed) << verdict.message;
  EXPECT_EQ(verdict.checked, 1000);
  EXPECT_EQ(verdict.seconds.size(), 5u);
}

TEST(GpuWorker, WrongValuesAndWritesBesideBuffersAreRejected) {
  Worker worker(options());
  Trial wrong = trial();
  spoil_values(wrong);
  EXPECT_EQ(worker.run(wrong).reason, Reason::Wrong);
  Trial beside = trial();
  spoil_stores(beside, 16);
  const Verdict verdict = worker.run(beside);
  EXPECT_EQ(verdict.reason, Reason::Wrong) << verdict.message;
}

TEST(GpuWorker, AnIllegalAccessEndsTheWorkerOnly) {
  Worker worker(options());
  Trial bad = trial();
  spoil_stores(bad, std::int64_t{1} << 40);
  const Verdict verdict = worker.run(bad);
  EXPECT_EQ(verdict.reason, Reason::Crash) << verdict.message;
  EXPECT_NE(verdict.message.find("illegal memory access"), std::string::npos) << verdict.message;
  EXPECT_EQ(worker.run(trial()).state, State::Verified);
  EXPECT_EQ(worker.processes_started(), 2);
}

TEST(GpuWorker, AKernelThatDoesNotEndIsAHang) {
  Worker worker(options(8));
  Trial endless = trial();
  spoil_loops(endless);
  const Verdict verdict = worker.run(endless);
  EXPECT_EQ(verdict.reason, Reason::Hang) << verdict.message;
  EXPECT_EQ(Worker(options()).run(trial()).state, State::Verified);
}

} // namespace
} // namespace egret::compiler
