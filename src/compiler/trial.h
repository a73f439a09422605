// A candidate kernel on trial: compiled, checked against its region's semantics, timed.
#pragma once

#include "backend/common/device.h"
#include "backend/reference/kernel_check.h"
#include "kernel/program.h"
#include "kernel/region.h"

#include <string>
#include <vector>

namespace egret::compiler {

struct Trial {
  kernel::Region region;
  kernel::KernelProgram program;
  backend::reference::Bindings sizes; ///< of the region's symbols
  bool verify = true;
  backend::reference::KernelCheckOptions check;
  int repetitions = 0; ///< timed samples; 0: no timing
};

struct Verdict {
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
  std::vector<double> seconds; ///< of a launch, by sample
  std::int64_t checked = 0;    ///< elements that were compared
  bool complete = true;        ///< every element was

  bool ok() const { return state != State::Rejected; }
};

const char* name_of(Verdict::Reason reason) noexcept;

/// Runs a trial in this process, which a bad kernel may end: see worker.h.
Verdict run_trial(backend::Device& device, const Trial& trial);

} // namespace egret::compiler
