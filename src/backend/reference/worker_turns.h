// Workers of an interpreted launch, one running at a time in a fixed order, with a barrier.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

namespace egret::backend::reference {

/// Runs `body(worker)` for each worker. Worker 0 goes until it ends or has to wait, then worker 1
/// and so on; when all have reached a barrier, worker 0 goes on. One worker runs on the calling
/// thread.
class WorkerTurns {
public:
  explicit WorkerTurns(int workers);
  /// Rethrows the first exception of a worker; throws InternalError when some end while others wait
  /// at a barrier.
  void run(const std::function<void(int)>& body);
  void barrier(int worker); ///< called from within body
  /// Called from within body: lets the others go on until `ready` holds, which is asked while no
  /// worker runs. Throws InternalError with `what` is waited for when nobody can go on.
  void wait(int worker, std::function<bool()> ready, const char* what);

private:
  enum class State { Running, Waiting, Done };
  struct Cancelled {};

  void wait_for_turn(int worker, std::unique_lock<std::mutex>& lock);
  int next_of(int worker) const;
  void pass_on(int worker);
  void fail(std::exception_ptr error);

  std::vector<State> states_;
  std::vector<std::function<bool()>> ready_; ///< by worker: what it waits for, empty at a barrier
  std::vector<const char*> what_;
  int turn_ = 0;
  bool cancelled_ = false;
  std::exception_ptr error_;
  std::mutex mutex_;
  std::vector<std::condition_variable> changed_; ///< by worker
};

} // namespace egret::backend::reference
