#include "backend/reference/worker_turns.h"

#include "support/fail.h"

#include <algorithm>
#include <thread>

namespace egret::backend::reference {

WorkerTurns::WorkerTurns(int workers)
    : states_(static_cast<std::size_t>(workers), State::Running),
      ready_(static_cast<std::size_t>(workers)),
      what_(static_cast<std::size_t>(workers), "a barrier"),
      changed_(static_cast<std::size_t>(workers)) {}

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

void WorkerTurns::wait(int worker, std::function<bool()> ready, const char* what) {
  if (ready())
    return;
  if (states_.size() == 1)
    throw InternalError(
        fmt::format("internal error: the only worker waits for {}, which nobody brings", what));
  const auto w = static_cast<std::size_t>(worker);
  std::unique_lock lock(mutex_);
  ready_[w] = std::move(ready);
  what_[w] = what;
  states_[w] = State::Waiting;
  pass_on(worker);
  wait_for_turn(worker, lock);
  ready_[w] = nullptr;
  what_[w] = "a barrier";
}

void WorkerTurns::wait_for_turn(int worker, std::unique_lock<std::mutex>& lock) {
  changed_[static_cast<std::size_t>(worker)].wait(lock, [&] {
    return cancelled_ ||
           (turn_ == worker && states_[static_cast<std::size_t>(worker)] == State::Running);
  });
  if (cancelled_)
    throw Cancelled{};
}

/// The next worker, in turn, that can go on; -1 when there is none.
int WorkerTurns::next_of(int worker) const {
  const int count = static_cast<int>(states_.size());
  for (int i = 1; i <= count; ++i) {
    const int w = (worker + i) % count;
    const auto at = static_cast<std::size_t>(w);
    if (states_[at] == State::Running ||
        (states_[at] == State::Waiting && ready_[at] && ready_[at]()))
      return w;
  }
  return -1;
}

void WorkerTurns::pass_on(int worker) {
  int next = next_of(worker);
  if (next < 0) { // all workers have come to the end of the phase
    auto waiting = std::find(states_.begin(), states_.end(), State::Waiting);
    auto done = std::find(states_.begin(), states_.end(), State::Done);
    if (waiting == states_.end())
      return;
    const auto who = waiting - states_.begin();
    if (done != states_.end())
      return fail(std::make_exception_ptr(InternalError(
          fmt::format("internal error: worker {} ends while worker {} waits at {}",
                      done - states_.begin(), who, what_[static_cast<std::size_t>(who)]))));
    for (std::size_t w = 0; w < states_.size(); ++w)
      if (ready_[w])
        return fail(std::make_exception_ptr(InternalError(fmt::format(
            "internal error: worker {} waits at {}, and nobody can go on", w, what_[w]))));
    std::fill(states_.begin(), states_.end(), State::Running);
    next = 0;
  }
  states_[static_cast<std::size_t>(next)] = State::Running;
  turn_ = next;
  changed_[static_cast<std::size_t>(next)].notify_all();
}

void WorkerTurns::fail(std::exception_ptr error) {
  if (!error_)
    error_ = error;
  cancelled_ = true;
  for (std::condition_variable& c : changed_)
    c.notify_all();
}

} // namespace egret::backend::reference
