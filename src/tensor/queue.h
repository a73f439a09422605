// What each thread has recorded and nobody has computed yet, and when it runs without being read.
#pragma once

#include <atomic>
#include <cstdint>

namespace egret::detail {

/// Nodes that live count here: operations without a value, and leaves made from data with their
/// bytes. One for each thread; that of a thread that has ended serves another one later.
struct Stream {
  std::atomic<std::int64_t> operations{0}, bytes{0};
  // What was left when the queue ran last, or less: of the stream's thread.
  std::int64_t operations_left = 0, bytes_left = 0;
};

/// This thread's.
Stream& this_stream();

/// A Tensor variable of this thread has another value: runs the queue if a limit is reached. Not
/// under any of the mutexes of nodes, handles and calls.
void statement_ended() noexcept;
/// This thread has recorded an operation: runs the queue if a limit is reached twice.
void operation_recorded(Stream& stream) noexcept;

/// While one lives, its thread's queue does not run by itself: what is recorded then belongs
/// together.
class QueueHold {
public:
  QueueHold() noexcept;
  ~QueueHold();
  QueueHold(const QueueHold&) = delete;
};

} // namespace egret::detail
