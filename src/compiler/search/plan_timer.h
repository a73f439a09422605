// A whole plan run again and again with data of its own, to be timed.
#pragma once

#include "compiler/compiled.h"

#include <memory>
#include <span>
#include <vector>

namespace egret::compiler {

/// A compiled plan of fixed sizes with memory for all that it works on: inputs and states hold
/// random numbers. `graph` is the one that was compiled, as its report has it.
class PlanTimer {
public:
  /// Error(Memory) when the device lacks it. The kernels of `compiled` must outlive the timer, also
  /// where it is moved. `workers`: that launches may use; 0: all. `record`: a
  /// device that can submits a run as one, as it does for programs; else each launch is one.
  PlanTimer(backend::Device& device, const Compiled& compiled, int workers = 0, bool record = true);
  PlanTimer(const PlanTimer&) = delete;
  PlanTimer& operator=(const PlanTimer&) = delete;

  /// Seconds that so many runs together take.
  double run(int times);
  /// Runs that together take about `seconds`, between 1 and 1000; warms up.
  int times_for(double seconds);

  /// Bytes that a plan works on.
  static double bytes_of(const kernel::Plan& plan);

private:
  struct Release {
    backend::Device* device;
    std::size_t bytes;
    void operator()(void* memory) const noexcept { device->release(memory, bytes); }
  };
  void* allocate(std::size_t bytes);
  void fill(void* memory, DType dtype, std::size_t bytes);

  backend::Device& device_;
  int workers_;
  bool record_;
  std::vector<std::unique_ptr<void, Release>> memory_;
  std::vector<void*> pointers_;
  std::vector<std::uint64_t> scalars_;
  std::vector<backend::Work> work_;
  std::unique_ptr<backend::Recording> recording_;
};

/// Seconds of a run of each plan by round, in turn, in about `seconds` seconds.
std::vector<std::vector<double>> time_in_turn(std::span<PlanTimer* const> plans, double seconds);

} // namespace egret::compiler
