// The counters behind egret::counters(), for those who count.
#pragma once

#include "egret/counters.h"

#include <atomic>
#include <cstdint>

namespace egret::runtime {

/// A number that any thread may change; exact in sum, in no order with anything else.
class Count {
public:
  void add(std::uint64_t n) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  /// By the only thread that changes it.
  void add_alone(std::uint64_t n) noexcept { set(get() + n); }
  void subtract(std::uint64_t n) noexcept { value_.fetch_sub(n, std::memory_order_relaxed); }
  void set(std::uint64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
  std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

private:
  std::atomic<std::uint64_t> value_{0};
};

struct Counts {
  Count ops_recorded, kernels_launched, submissions, bytes_read, bytes_written, graphs_traced,
      compiles, kernels_compiled, kernels_loaded, kernels_refused, candidates_tried, measurements,
      choices_remembered, search_microseconds, derived_fills, plan_hits, plan_symbolic_hits,
      plan_explorations, plan_specializations, plans_triggered, plan_misses, plans_evicted,
      device_allocations, pool_allocations, host_copies, bytes_reserved;
};

/// This thread's part of the sums: each thread writes to a line of memory that few others write to.
Counts& count() noexcept;
/// count().ops_recorded.add(1), in fewer cycles where this thread's part is its alone.
void count_operation() noexcept;
/// The sum of a number over all threads.
std::uint64_t sum_of(Count Counts::*number) noexcept;

/// What is one number for the whole process at any time.
struct Levels {
  Count plans, plan_bytes;

  void use(std::uint64_t bytes) noexcept {
    const std::uint64_t now = in_use_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::uint64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  void unuse(std::uint64_t bytes) noexcept { in_use_.fetch_sub(bytes, std::memory_order_relaxed); }
  std::uint64_t in_use() const noexcept { return in_use_.load(std::memory_order_relaxed); }
  std::uint64_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
  void reset_peak() noexcept { peak_.store(in_use(), std::memory_order_relaxed); }

private:
  std::atomic<std::uint64_t> in_use_{0}, peak_{0};
};

Levels& levels() noexcept;

} // namespace egret::runtime
