// What the library has done, in numbers: for tests, reports and curiosity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace egret {

/// Counts since the process started, over all threads. Take one before and one after; subtract.
struct Counters {
  std::uint64_t ops_recorded = 0; ///< nodes that lazy tensors recorded
  std::uint64_t kernels_launched = 0;
  std::uint64_t submissions =
      0;                        ///< of work to a device: a launch, a copy, or a whole recorded step
  std::uint64_t bytes_read = 0; ///< by launched kernels, as their plans state them
  std::uint64_t bytes_written = 0;
  std::uint64_t graphs_traced = 0;      ///< runs of a function by compile()
  std::uint64_t compiles = 0;           ///< plans made
  std::uint64_t kernels_compiled = 0;   ///< machine code made
  std::uint64_t kernels_loaded = 0;     ///< machine code found on disk
  std::uint64_t kernels_refused = 0;    ///< by the device's compiler or by verification: another
                                        ///< schedule took their place
  std::uint64_t candidates_tried = 0;   ///< by searches: schedules that were looked at
  std::uint64_t measurements = 0;       ///< by searches: trials in a worker process
  std::uint64_t choices_remembered = 0; ///< kernels whose schedule was found in the database
  std::uint64_t search_microseconds = 0;
  std::uint64_t derived_fills = 0; ///< derived inputs that were computed, or recomputed
  std::uint64_t plan_hits = 0;     ///< evaluations that found their plan
  /// Those of them whose plan serves other sizes, slice bounds or constants too.
  std::uint64_t plan_symbolic_hits = 0;
  std::uint64_t plan_explorations = 0;    ///< lazy evaluations that found none
  std::uint64_t plan_specializations = 0; ///< sizes met often that got a plan of their own
  std::uint64_t plans_triggered = 0; ///< evaluations before the read that earlier rounds had there
  std::uint64_t plan_misses = 0;
  std::uint64_t plans_evicted = 0;      ///< left the bounded store
  std::uint64_t device_allocations = 0; ///< asked of the device, not served by the pool
  std::uint64_t pool_allocations = 0;   ///< served by the pool or the device
  std::uint64_t host_copies = 0; ///< bytes copied from or to device memory by reads and writes

  std::uint64_t bytes_in_use = 0;   ///< device memory held by tensors and plans now (not a sum)
  std::uint64_t bytes_reserved = 0; ///< device memory held by the pool now, in use or free
  std::uint64_t peak_bytes = 0;     ///< largest bytes_in_use since reset_peak_bytes()
  std::uint64_t plans = 0;          ///< in the store now
  std::uint64_t plan_bytes = 0; ///< of the host's memory that they take, with their kernels' code

  /// The sums' differences; the five states are those of `after`.
  friend Counters operator-(const Counters& after, const Counters& before);
  std::string text() const; ///< a line each, for people
};

Counters counters();
void reset_peak_bytes();

/// The bound on Counters::plan_bytes: 256 MiB at the start, or EGRET_PLANS_MB. Beyond it the least
/// recently used plans are evicted, and compiled again at their next use; the newest one stays.
void set_plan_memory(std::size_t bytes);

} // namespace egret
