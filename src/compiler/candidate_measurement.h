// The measurement of a candidate kernel: it is compiled, checked against its region's semantics and
// timed beside baselines.
#pragma once

#include "backend/common/device.h"
#include "backend/reference/kernel_check.h"
#include "kernel/program.h"
#include "kernel/region.h"

#include <memory>
#include <string>
#include <vector>

namespace egret::compiler {

struct CandidateMeasurement {
  kernel::Region region;
  kernel::KernelProgram program;
  /// Programs of the same region that are timed beside it, in turn, so that whatever else the
  /// machine does meets all of them alike. They are not checked.
  std::vector<kernel::KernelProgram> baselines;
  /// Programs that are likely to be tried next, on devices that leave the host's cores idle: they
  /// are compiled while this measurement goes on. What is still waiting when the next list comes is
  /// dropped.
  std::vector<kernel::KernelProgram> ahead;
  backend::reference::Bindings sizes; ///< of the region's symbols
  bool verify = true;
  backend::reference::KernelCheckOptions check;
  int workers = 0; ///< that launches may use, of those that the process has; 0: all
  int repetitions =
      0; ///< timed rounds, in each of which every program gives a sample; 0: no timing
  double sample_seconds = 2e-3; ///< a sample is of launches that together take about as long
  double give_up = 0; ///< no more rounds when after two or more the program's best time is this
                      ///< many times the first baseline's; 0: never
  bool cold = false;  ///< launches take turns on copies of the arguments that together are more
                      ///< than the caches hold
};

struct MeasurementResult {
  enum class State : std::uint8_t { Compiled, Verified, Timed, Rejected };
  /// Why it was rejected.
  enum class Reason : std::uint8_t {
    None,
    Compile, ///< it does not compile, or asks for more than the device has
    Wrong,   ///< its results are not those of the region, or it writes where it must not
    Crash,   ///< it ended the process that ran it, or the device's context
    Hang,    ///< it did not come to an end in time
    Device,  ///< the device cannot be had; nothing is known of the kernel
  };
  State state = State::Compiled;
  Reason reason = Reason::None;
  std::string message; ///< of a rejection, for people
  double compile_seconds = 0;
  std::vector<double> seconds;                       ///< of a launch, by round
  std::vector<std::vector<double>> baseline_seconds; ///< by baseline, by round
  std::int64_t checked = 0;                          ///< elements that were compared
  bool complete = true;                              ///< every element was
  double worst = 0;                                  ///< largest ratio of difference to tolerance

  bool ok() const { return state != State::Rejected; }
};

const char* name_of(MeasurementResult::Reason reason) noexcept;

/// Runs measurements in this process, which a bad kernel may end: see measurement_process.h.
/// Compiled programs, and the inputs and right results of the region that was tried last, are kept
/// for the next measurement.
class CandidateMeasurer {
public:
  explicit CandidateMeasurer(backend::Device& device);
  ~CandidateMeasurer();
  CandidateMeasurer(const CandidateMeasurer&) = delete;
  CandidateMeasurer& operator=(const CandidateMeasurer&) = delete;
  MeasurementResult run(const CandidateMeasurement& measurement);

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One measurement, with nothing kept.
MeasurementResult measure_candidate(backend::Device& device,
                                    const CandidateMeasurement& measurement);

} // namespace egret::compiler
