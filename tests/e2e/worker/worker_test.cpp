// Kernels on measurement in another process: whatever they do, the caller gets a result.
#include "compiler/measurement_process.h"

#include "backend/cpu/cpu_device.h"
#include "egret/error.h"
#include "support/bad_kernels.h"
#include "support/cpu_levels.h"
#include "support/scale.h"

#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

using egret::testing::good_trial;
using egret::testing::spoil_loops;
using egret::testing::spoil_stores;
using egret::testing::spoil_values;
using State = MeasurementResult::State;
using Reason = MeasurementResult::Reason;

const kernel::Target& cpu() {
  static const auto device = backend::cpu::make_cpu_device(1);
  return device->target();
}
MeasurementProcessOptions options(double timeout = 60 * test::scale()) {
  return {"cpu", EGRET_TEST_TOOL, timeout};
}

TEST(MeasurementProcess, VerifiesAndTimesAGoodKernel) {
  MeasurementProcess worker(options());
  CandidateMeasurement measurement = good_trial(cpu());
  MeasurementResult outcome = worker.run(measurement);
  EXPECT_EQ(outcome.state, State::Verified) << outcome.message;
  EXPECT_EQ(outcome.checked, 1000);
  EXPECT_TRUE(outcome.complete);
  EXPECT_GT(outcome.compile_seconds, 0);
  measurement.repetitions = 5;
  outcome = worker.run(measurement);
  EXPECT_EQ(outcome.state, State::Timed) << outcome.message;
  ASSERT_EQ(outcome.seconds.size(), 5u);
  for (double seconds : outcome.seconds)
    EXPECT_GT(seconds, 0);
  measurement.verify = false;
  measurement.repetitions = 0;
  EXPECT_EQ(worker.run(measurement).state, State::Compiled);
  EXPECT_EQ(worker.processes_started(), 1);
}

TEST(MeasurementProcess, WrongResultsAreRejectedWithTheElement) {
  MeasurementProcess worker(options());
  CandidateMeasurement measurement = good_trial(cpu());
  spoil_values(measurement);
  const MeasurementResult outcome = worker.run(measurement);
  EXPECT_EQ(outcome.state, State::Rejected);
  EXPECT_EQ(outcome.reason, Reason::Wrong);
  EXPECT_NE(outcome.message.find("element 0 of output 0"), std::string::npos) << outcome.message;
}

TEST(MeasurementProcess, WritesBesideABufferAreRejected) {
  MeasurementProcess worker(options());
  CandidateMeasurement measurement = good_trial(cpu());
  spoil_stores(measurement, 16);
  const MeasurementResult outcome = worker.run(measurement);
  EXPECT_EQ(outcome.reason, Reason::Wrong) << outcome.message;
  EXPECT_NE(outcome.message.find("writes out of bounds"), std::string::npos) << outcome.message;
}

TEST(MeasurementProcess, ACrashIsAVerdictAndTheNextTrialGetsANewProcess) {
  testing::let_children_crash();
  MeasurementProcess worker(options());
  CandidateMeasurement measurement = good_trial(cpu());
  spoil_stores(measurement, std::int64_t{1} << 40);
  const MeasurementResult outcome = worker.run(measurement);
  EXPECT_EQ(outcome.state, State::Rejected);
  EXPECT_EQ(outcome.reason, Reason::Crash) << outcome.message;
  EXPECT_NE(outcome.message.find("kernel victim: it ended the process that ran it: signal 11"),
            std::string::npos)
      << outcome.message;
  EXPECT_EQ(worker.run(good_trial(cpu())).state, State::Verified);
  EXPECT_EQ(worker.processes_started(), 2);
}

TEST(MeasurementProcess, AHangIsAVerdictToo) {
  MeasurementProcess worker(options(2));
  CandidateMeasurement measurement = good_trial(cpu());
  spoil_loops(measurement);
  const MeasurementResult outcome = worker.run(measurement);
  EXPECT_EQ(outcome.reason, Reason::Hang) << outcome.message;
  EXPECT_EQ(outcome.message, "kernel victim: it did not end within 2 s");
  EXPECT_EQ(MeasurementProcess(options()).run(good_trial(cpu())).state, State::Verified);
}

TEST(MeasurementProcess, ADeviceThatIsNotThereSaysNothingOfTheKernel) {
  MeasurementProcess worker({"cuda:77", EGRET_TEST_TOOL, 60 * test::scale()});
  const MeasurementResult outcome = worker.run(good_trial(cpu()));
  EXPECT_EQ(outcome.state, State::Rejected);
  EXPECT_EQ(outcome.reason, Reason::Device) << outcome.message;
  EXPECT_NE(outcome.message.find("cuda"), std::string::npos) << outcome.message;
}

TEST(MeasurementProcess, AProgramThatIsNoWorkerIsAnError) {
  MeasurementProcess missing({"cpu", "/nowhere/egret", 5});
  EXPECT_THROW(missing.run(good_trial(cpu())), Error);
  MeasurementProcess silent({"cpu", "/bin/true", 60 * test::scale()});
  const MeasurementResult outcome = silent.run(good_trial(cpu()));
  EXPECT_EQ(outcome.reason, Reason::Crash);
  EXPECT_NE(outcome.message.find("ended with code 0"), std::string::npos) << outcome.message;
}

TEST(MeasurementProcess, IsFoundByTheVariableOrBesideTheProgram) {
  {
    egret::testing::ScopedEnvironment named("EGRET_WORKER", "/bin/true");
    EXPECT_EQ(find_worker(), "/bin/true");
  }
  for (const char* name : {"/nowhere/egret", "/tmp"}) { // the second is a folder
    egret::testing::ScopedEnvironment wrong("EGRET_WORKER", name);
    EXPECT_THROW(find_worker(), Error);
  }
  // Beside a test's program the command is found: an empty variable counts as not set.
  egret::testing::ScopedEnvironment empty("EGRET_WORKER", "");
  EXPECT_TRUE(find_worker().ends_with("egret")) << find_worker();
}

} // namespace
} // namespace egret::compiler
