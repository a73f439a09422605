// Launches on this machine's processor: the pool of threads, the memory of each worker, the barrier
// that they meet at.
#pragma once

#include "backend/common/launch_number.h"
#include "kernel/program.h"
#include "support/thread_pool.h"

#include <cstdint>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

namespace egret::backend {

/// Of each worker's memory.
Expr worker_bytes(const kernel::KernelProgram& program);

/// What a launch of a program asks for, by the dims in its argument block.
struct HostLaunch {
  explicit HostLaunch(const kernel::KernelProgram& program);

  LaunchNumber workers;      ///< that can be of use
  LaunchNumber worker_bytes; ///< of each worker's memory: ArgBlock::worker_memory
  bool uses_barrier;
};

/// Safe to use from many threads.
class HostWorkers {
public:
  explicit HostWorkers(int workers) : pool_(workers) {}

  /// Calls `run(block, worker, workers)` for each of at most `workers` workers (0: as many as can
  /// be of use) and returns when all have returned. The block is the given one with worker memory
  /// and the barrier, an egret::Barrier that is null for one worker, filled in.
  template <class F>
  void launch(const HostLaunch& launch, const kernel::ArgBlock& block, int workers, F&& run) {
    const int count = workers_for(launch, block, workers);
    const std::int64_t bytes = launch.worker_bytes.at(block.dims);
    if (count == 1 && bytes == 0) {
      // No other thread takes part and nothing is shared: other launches need not be waited for.
      run(block, 0, 1);
      return;
    }
    std::lock_guard lock(launch_);
    const kernel::ArgBlock full = filled(launch, block, count, bytes);
    if (count == 1)
      run(full, 0, 1);
    else
      pool_.run(count, [&](int worker, int all) { run(full, worker, all); });
  }

private:
  // What one launch at a time needs, kept from launch to launch.
  struct Scratch {
    std::vector<void*> memory;      ///< by worker
    std::vector<std::size_t> sizes; ///< bytes of each
    Barrier barrier;

    ~Scratch();
    void reserve(std::size_t workers, std::size_t bytes);
  };

  int workers_for(const HostLaunch& launch, const kernel::ArgBlock& block, int workers) const;
  kernel::ArgBlock filled(const HostLaunch& launch, const kernel::ArgBlock& block, int count,
                          std::int64_t bytes);

  ThreadPool pool_;
  std::mutex launch_; ///< held while scratch_ is in use
  Scratch scratch_;
};

} // namespace egret::backend
