// A pool of threads that run one function together, and the barrier that they meet at. The only
// threads that egret starts for computing.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

namespace egret {

/// Where a fixed number of threads wait for each other, again and again. A waiting thread spins for
/// a bounded time, then sleeps.
class Barrier {
public:
  explicit Barrier(int parties = 1) noexcept : parties_(parties) {}
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  /// Another number of parties; nobody may be waiting.
  void reset(int parties) noexcept;
  /// Returns when all parties have called. What they wrote before is visible to all after.
  void wait() noexcept;

private:
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> round_{0};
  std::atomic<int> sleepers_{0};
  int parties_;
};

/// A reference to something callable as f(worker, workers). It does not own what it refers to.
class WorkerFunction {
public:
  template <class F,
            class = std::enable_if_t<!std::is_same_v<std::remove_cvref_t<F>, WorkerFunction>>>
  WorkerFunction(F&& f) noexcept
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, int worker, int workers) {
          (*static_cast<std::remove_reference_t<F>*>(object))(worker, workers);
        }) {}
  void operator()(int worker, int workers) const { call_(object_, worker, workers); }

private:
  void* object_;
  void (*call_)(void*, int, int);
};

/// `size` workers, the thread that calls run() being worker 0. The other threads start at the first
/// run that needs them, spin for a bounded time after a run and sleep then, so that an idle process
/// costs nothing.
///
/// Where other processes have the cores, a thread that is called begins when the system's scheduler
/// lets it, milliseconds later. Calls that do not wait for each other are done by the caller if
/// their thread has not begun when the caller has ended its own. Calls that meet at a barrier are
/// fewer for a while after a thread was late.
///
/// run() may be called from several threads: runs happen one after another, those of one thread in
/// its order. A run() from inside a run of the same pool happens at once, on the calling thread
/// alone, as worker 0 of 1.
class ThreadPool {
public:
  explicit ThreadPool(int size);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const noexcept { return size_; }
  /// Calls f(worker, workers) once for each worker below min(workers, size()), all at the same
  /// time, so that they may meet at a Barrier, and returns when all have returned. The first
  /// exception that a worker threw is thrown on, after all have ended.
  void run(int workers, WorkerFunction f) { run(workers, f, true); }
  /// The same where no call waits for another: a thread may make several, one after the other.
  void run_apart(int workers, WorkerFunction f) { run(workers, f, false); }
  /// Of `workers` that would meet at a barrier those that are likely to begin at once: all, or
  /// fewer, down to one, while threads have been late.
  int prompt(int workers) noexcept;
  /// True on a thread that is inside a run of this pool.
  bool inside() const noexcept;

private:
  struct Worker;
  void run(int workers, WorkerFunction f, bool together);
  void work(Worker& worker, int number) noexcept;
  void call(const WorkerFunction& f, int worker, int workers) noexcept;
  void start(int workers);
  void note_late(std::int64_t now) noexcept;

  const int size_;
  std::mutex turn_;                              ///< held by the thread whose run is going on
  std::vector<std::unique_ptr<Worker>> workers_; ///< of numbers 1 ..
  const WorkerFunction* function_ = nullptr;
  int active_ = 0;
  alignas(64) std::atomic<int> remaining_{0};
  std::atomic<bool> caller_sleeps_{false};
  /// Of the last run: when its threads were called, in nanoseconds of a steady clock.
  std::atomic<std::int64_t> called_{0};
  std::atomic<std::int64_t> late_until_{0}; ///< half of the workers meet until then; 0: all do
  std::atomic<std::int64_t> patience_{0};   ///< how long the last time was, 0 long after it
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

} // namespace egret
