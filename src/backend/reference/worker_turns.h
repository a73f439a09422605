// Workers of an interpreted launch, one running at a time in a fixed order, with a barrier.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

namespace egret::backend::reference {

/// Runs `body(worker)` for each worker. Worker 0 goes until it ends or reaches a barrier, then
/// worker 1 and so on; when all have reached the barrier, worker 0 goes on. One worker runs on the
/// calling thread.
class WorkerTurns {
public:
  explicit WorkerTurns(int workers);
  /// Rethrows the first exception of a worker; throws InternalError when some end while others wait
  /// at a barrier.
  void run(const std::function<void(int)>& body);
  void barrier(int worker); ///< called from within body

private:
  enum class State { Running, Waiting, Done };
  struct Cancelled {};

  void wait_for_turn(int worker, std::unique_lock<std::mutex>& lock);
  void pass_on(int worker);
  void fail(std::exception_ptr error);

  std::vector<State> states_;
  int turn_ = 0;
  bool cancelled_ = false;
  std::exception_ptr error_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

} // namespace egret::backend::reference
