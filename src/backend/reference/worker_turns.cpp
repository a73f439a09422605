#include "backend/reference/worker_turns.h"

#include "support/fail.h"

#include <algorithm>
#include <thread>

namespace egret::backend::reference {

WorkerTurns::WorkerTurns(int workers)
    : states_(static_cast<std::size_t>(workers), State::Running) {}

void WorkerTurns::run(const std::function<void(int)>& body) {
  if (states_.size() == 1)
    return body(0);
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < states_.size(); ++i)
    threads.emplace_back([this, &body, worker = static_cast<int>(i)] {
      std::exception_ptr error;
      try {
        {
          std::unique_lock lock(mutex_);
          wait_for_turn(worker, lock);
        }
        body(worker);
      } catch (const Cancelled&) {
        return;
      } catch (...) {
        error = std::current_exception();
      }
      std::lock_guard lock(mutex_);
      if (error)
        return fail(error);
      states_[static_cast<std::size_t>(worker)] = State::Done;
      pass_on(worker);
    });
  threads.clear(); // joins
  if (error_)
    std::rethrow_exception(error_);
}

void WorkerTurns::barrier(int worker) {
  if (states_.size() == 1)
    return;
  std::unique_lock lock(mutex_);
  states_[static_cast<std::size_t>(worker)] = State::Waiting;
  pass_on(worker);
  wait_for_turn(worker, lock);
}

void WorkerTurns::wait_for_turn(int worker, std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] {
    return cancelled_ ||
           (turn_ == worker && states_[static_cast<std::size_t>(worker)] == State::Running);
  });
  if (cancelled_)
    throw Cancelled{};
}

void WorkerTurns::pass_on(int worker) {
  auto running = std::find(states_.begin() + worker, states_.end(), State::Running);
  if (running == states_.end()) { // all workers have come to the end of the phase
    auto waiting = std::find(states_.begin(), states_.end(), State::Waiting);
    auto done = std::find(states_.begin(), states_.end(), State::Done);
    if (waiting == states_.end())
      return;
    if (done != states_.end())
      return fail(std::make_exception_ptr(InternalError(
          fmt::format("internal error: worker {} ends while worker {} waits at a barrier",
                      done - states_.begin(), waiting - states_.begin()))));
    std::fill(states_.begin(), states_.end(), State::Running);
    running = states_.begin();
  }
  turn_ = static_cast<int>(running - states_.begin());
  changed_.notify_all();
}

void WorkerTurns::fail(std::exception_ptr error) {
  if (!error_)
    error_ = error;
  cancelled_ = true;
  changed_.notify_all();
}

} // namespace egret::backend::reference
