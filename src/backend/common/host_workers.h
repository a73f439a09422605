// Launches on this machine's processor: the pool of threads, the memory of each worker, the barrier
// that they meet at.
#pragma once

#include "backend/common/launch_number.h"
#include "kernel/program.h"
#include "support/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
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

/// Safe to use from many threads, whose launches go on at the same time. A thread that launches
/// alone has all workers. Those whose launches overlap share them: the workers are divided in
/// halves, quarters and so on, until each launch has a part of its own, and put together again when
/// launches have not overlapped for a while. What takes one worker runs on the thread that launches
/// it. Nothing that a kernel computes depends on how many workers it has.
class HostWorkers {
public:
  explicit HostWorkers(int workers);
  ~HostWorkers();
  HostWorkers(const HostWorkers&) = delete;
  HostWorkers& operator=(const HostWorkers&) = delete;

  /// Calls `run(block, worker, workers)` for each of at most `workers` workers (0: as many as can
  /// be of use) and returns when all have returned. The block is the given one with worker memory
  /// and the barrier, an egret::Barrier that is null for one worker, filled in.
  template <class F>
  void launch(const HostLaunch& launch, const kernel::ArgBlock& block, int workers, F&& run) {
    const std::int64_t bytes = launch.worker_bytes.at(block.dims);
    if (const int useful = useful_workers(launch, block, workers); useful > 1) {
      const Turn turn(*this);
      if (Team* team = turn.team()) {
        int count = std::min(useful, team->pool.size());
        if (launch.uses_barrier)
          count = team->pool.prompt(count);
        const kernel::ArgBlock full = team->filled(launch, block, count, bytes);
        const auto call = [&](int worker, int all) {
          const Inside inside(*this);
          run(full, worker, all);
        };
        if (launch.uses_barrier)
          team->pool.run(count, call);
        else
          team->pool.run_apart(count, call);
        return;
      }
    }
    if (bytes == 0)
      return run(block, 0, 1);
    void* const memory[] = {own_memory(bytes)};
    kernel::ArgBlock full = block;
    full.worker_memory = memory;
    run(full, 0, 1);
  }

  /// Copies memory that does not overlap, by at most `workers` workers (0: as many as are of use):
  /// one core alone does not take what the caches and the memory can give.
  void copy(void* to, const void* from, std::size_t bytes, int workers = 0);

private:
  /// Some of the workers, and what one launch at a time needs, kept from launch to launch.
  struct Team {
    explicit Team(int workers) : pool(workers) {}
    ~Team();
    /// While `busy` is held.
    kernel::ArgBlock filled(const HostLaunch& launch, const kernel::ArgBlock& block, int count,
                            std::int64_t bytes);

    ThreadPool pool;
    std::mutex busy;
    std::vector<void*> memory;      ///< by worker
    std::vector<std::size_t> sizes; ///< bytes of each
    Barrier barrier;
  };

  /// While one lives, its thread launches; team(): on these workers, or alone.
  class Turn {
  public:
    explicit Turn(HostWorkers& all);
    ~Turn();
    Turn(const Turn&) = delete;
    Team* team() const noexcept { return team_; }

  private:
    HostWorkers& all_;
    Team* team_ = nullptr;
  };

  /// This thread is one of the workers.
  class Inside {
  public:
    explicit Inside(const HostWorkers& all) noexcept;
    ~Inside();
    Inside(const Inside&) = delete;

  private:
    const HostWorkers* before_;
  };

  int useful_workers(const HostLaunch& launch, const kernel::ArgBlock& block, int workers) const;
  /// Of `useful` workers those that `workers` allows, and one where this thread is a worker.
  int allowed_workers(std::int64_t useful, int workers) const;
  std::size_t level_for(int launches) noexcept;
  /// Of this thread.
  static void* own_memory(std::int64_t bytes);

  const int size_;
  /// By how often the workers are divided: 1 team, 2, 4 ... of more than one worker each.
  std::vector<std::vector<std::unique_ptr<Team>>> teams_;
  std::atomic<int> launches_{0};      ///< that go on
  std::atomic<std::size_t> level_{0}; ///< place in teams_; its size: all run alone
  std::atomic<int> calm_{0};          ///< launches since half the teams were too few
};

} // namespace egret::backend
