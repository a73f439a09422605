// Measurements of kernels in a process of their own: a kernel that crashes or does not end takes
// that process with it, and the caller gets a result that says so.
#pragma once

#include "compiler/candidate_measurement.h"

#include <memory>
#include <string>

namespace egret::compiler {

struct MeasurementProcessOptions {
  std::string device = "cpu"; ///< "cpu", "cuda:0"
  std::string binary;         ///< the egret command; empty: find_worker()
  double timeout_seconds =
      60; ///< of one measurement, compilation and the start of the process included
};

/// The command that can serve as a worker: the file that EGRET_WORKER names, or `egret` beside the
/// library or program that this code is in, or in ../bin from there. Error(File) that says where it
/// was looked for.
std::string find_worker();

/// One process, started at the first measurement and again after it was lost. For one thread at a
/// time.
class MeasurementProcess {
public:
  explicit MeasurementProcess(MeasurementProcessOptions options = {});
  ~MeasurementProcess();
  MeasurementProcess(const MeasurementProcess&) = delete;
  MeasurementProcess& operator=(const MeasurementProcess&) = delete;

  /// Error(File) when the process cannot be started; all that concerns the kernel or the device is
  /// in the result.
  MeasurementResult run(const CandidateMeasurement& measurement);
  MeasurementResult run(const CandidateMeasurement& measurement, double timeout_seconds);
  int processes_started() const noexcept { return started_; }

private:
  void start();
  void stop() noexcept;
  std::string lost(); ///< waits for the process's end; how it ended

  MeasurementProcessOptions options_;
  int socket_ = -1;
  int process_ = -1;
  int started_ = 0;
};

/// The other side: answers measurements that come over a socket until it is closed. Gives the exit
/// code.
int serve_measurements(int socket);

} // namespace egret::compiler
