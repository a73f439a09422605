// Checking a kernel against the semantics of its region: what every winner of a search has to pass,
// and how generators are tested.
#pragma once

#include "backend/reference/host_array.h"
#include "kernel/program.h"
#include "kernel/region.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace egret::backend::reference {

/// Runs a program on host memory: interpreted, or compiled and launched on a device. `block` has
/// pointers for Argument and Workspace buffers, dims and scalars.
using LaunchKernel =
    std::function<void(const kernel::KernelProgram& program, const kernel::ArgBlock& block)>;

struct KernelCheckOptions {
  std::uint64_t seed = 1;      ///< of the random inputs
  bool special_values = false; ///< some inputs are NaN, infinite, zero of either sign, huge or tiny
  bool share_aliases = false;  ///< an output stands in the memory of the operand it may take over
  double scale = 1;            ///< multiplies every tolerance
  /// Evaluations of stage bodies up to which every element is checked; beyond it a sample is.
  std::int64_t complete_work = 1 << 20;
  std::int64_t sample_work = 1 << 21; ///< evaluations that a sample may cost, by estimate
  std::int64_t samples = 256;         ///< points of a sample, at least those of each tile class
  std::vector<std::int64_t>
      tiles; ///< by region axis, as the schedule has them; 0 or missing: unknown
};

struct KernelCheck {
  bool ok = true;
  bool complete = true;     ///< every element was checked
  std::int64_t checked = 0; ///< elements
  std::int64_t vacuous = 0; ///< of these, elements of which nothing could be said (estimate.h)
  double worst = 0;         ///< largest ratio of difference to tolerance among right floats
  std::string message; ///< empty when ok, else what was found first, with output, point, values and
                       ///< tolerance
};

/// Many programs of one region, all on the same inputs and at the same points: the inputs are made
/// and the region's semantics are evaluated once.
class KernelChecker {
public:
  /// `region` and `sizes` are copied.
  KernelChecker(const kernel::Region& region, const Bindings& sizes = {},
                const KernelCheckOptions& options = {});
  ~KernelChecker();
  KernelChecker(KernelChecker&&) noexcept;
  KernelChecker& operator=(KernelChecker&&) noexcept;
  /// As verify_kernel().
  KernelCheck check(const kernel::KernelProgram& program, const LaunchKernel& launch);

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Runs `program` once on random inputs and compares its outputs with the region's semantics. The
/// program's arguments are the region's tensor operands, then its outputs; scalars are its scalar
/// operands; `sizes` binds the region's symbols. Every operand has exactly the alignment that the
/// region promises. Output memory is filled with a pattern first, so that elements which are not
/// written are found, and every buffer stands between guard zones; operands must stay as they were.
/// What the launch throws passes through.
KernelCheck verify_kernel(const kernel::Region& region, const kernel::KernelProgram& program,
                          const LaunchKernel& launch, const Bindings& sizes = {},
                          const KernelCheckOptions& options = {});

} // namespace egret::backend::reference
