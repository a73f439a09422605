// Kernels on trial in another process: whatever they do, the caller gets a verdict.
#include "compiler/worker.h"

#include "backend/cpu/cpu_device.h"
#include "egret/error.h"
#include "support/bad_kernels.h"
#include "support/cpu_levels.h"

#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

using egret::testing::good_trial;
using egret::testing::spoil_loops;
using egret::testing::spoil_stores;
using egret::testing::spoil_values;
using State = Verdict::State;
using Reason = Verdict::Reason;

const kernel::Target& cpu() {
  static const auto device = backend::cpu::make_cpu_device(1);
  return device->target();
}
WorkerOptions options(double timeout = 60) {
  return {"cpu", EGRET_TEST_TOOL, timeout};
}

TEST(Worker, VerifiesAndTimesAGoodKernel) {
  Worker worker(options());
  Trial trial = good_trial(cpu());
  Verdict verdict = worker.run(trial);
  EXPECT_EQ(verdict.state, State::Verified) << verdict.message;
  EXPECT_EQ(verdict.checked, 1000);
  EXPECT_TRUE(verdict.complete);
  EXPECT_GT(verdict.compile_seconds, 0);
  trial.repetitions = 5;
  verdict = worker.run(trial);
  EXPECT_EQ(verdict.state, State::Timed) << verdict.message;
  ASSERT_EQ(verdict.seconds.size(), 5u);
  for (double seconds : verdict.seconds)
    EXPECT_GT(seconds, 0);
  trial.verify = false;
  trial.repetitions = 0;
  EXPECT_EQ(worker.run(trial).state, State::Compiled);
  EXPECT_EQ(worker.processes_started(), 1);
}

TEST(Worker, WrongResultsAreRejectedWithTheElement) {
  Worker worker(options());
  Trial trial = good_trial(cpu());
  spoil_values(trial);
  const Verdict verdict = worker.run(trial);
  EXPECT_EQ(verdict.state, State::Rejected);
  EXPECT_EQ(verdict.reason, Reason::Wrong);
  EXPECT_NE(verdict.message.find("element 0 of output 0"), std::string::npos) << verdict.message;
}

TEST(Worker, WritesBesideABufferAreRejected) {
  Worker worker(options());
  Trial trial = good_trial(cpu());
  spoil_stores(trial, 16);
  const Verdict verdict = worker.run(trial);
  EXPECT_EQ(verdict.reason, Reason::Wrong) << verdict.message;
  EXPECT_NE(verdict.message.find("writes out of bounds"), std::string::npos) << verdict.message;
}

TEST(Worker, ACrashIsAVerdictAndTheNextTrialGetsANewProcess) {
  testing::let_children_crash();
  Worker worker(options());
  Trial trial = good_trial(cpu());
  spoil_stores(trial, std::int64_t{1} << 40);
  const Verdict verdict = worker.run(trial);
  EXPECT_EQ(verdict.state, State::Rejected);
  EXPECT_EQ(verdict.reason, Reason::Crash) << verdict.message;
  EXPECT_NE(verdict.message.find("kernel victim: it ended the process that ran it: signal 11"),
            std::string::npos)
      << verdict.message;
  EXPECT_EQ(worker.run(good_trial(cpu())).state, State::Verified);
  EXPECT_EQ(worker.processes_started(), 2);
}

TEST(Worker, AHangIsAVerdictToo) {
  Worker worker(options(2));
  Trial trial = good_trial(cpu());
  spoil_loops(trial);
  const Verdict verdict = worker.run(trial);
  EXPECT_EQ(verdict.reason, Reason::Hang) << verdict.message;
  EXPECT_EQ(verdict.message, "kernel victim: it did not end within 2 s");
  EXPECT_EQ(Worker(options()).run(good_trial(cpu())).state, State::Verified);
}

TEST(Worker, ADeviceThatIsNotThereSaysNothingOfTheKernel) {
  Worker worker({"cuda:77", EGRET_TEST_TOOL, 60});
  const Verdict verdict = worker.run(good_trial(cpu()));
  EXPECT_EQ(verdict.state, State::Rejected);
  EXPECT_EQ(verdict.reason, Reason::Device) << verdict.message;
  EXPECT_NE(verdict.message.find("cuda"), std::string::npos) << verdict.message;
}

TEST(Worker, AProgramThatIsNoWorkerIsAnError) {
  Worker missing({"cpu", "/nowhere/egret", 5});
  EXPECT_THROW(missing.run(good_trial(cpu())), Error);
  Worker silent({"cpu", "/bin/true", 5});
  const Verdict verdict = silent.run(good_trial(cpu()));
  EXPECT_EQ(verdict.reason, Reason::Crash);
  EXPECT_NE(verdict.message.find("ended with code 0"), std::string::npos) << verdict.message;
}

TEST(Worker, IsFoundByTheVariableOrBesideTheProgram) {
  {
    egret::testing::ScopedEnvironment named("EGRET_WORKER", "/bin/true");
    EXPECT_EQ(find_worker(), "/bin/true");
  }
  egret::testing::ScopedEnvironment wrong("EGRET_WORKER", "/nowhere/egret");
  EXPECT_THROW(find_worker(), Error);
}

} // namespace
} // namespace egret::compiler
