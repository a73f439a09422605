// What each thread has recorded and nobody has computed yet, and when it runs without being read.
#pragma once

#include "support/spin_lock.h"
#include "tensor/triggers.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <span>

namespace egret::detail {

struct Node;
class Handle;
class RecentPlans;
class RecentDerivations;
class Forms;
struct Walk;

/// Some of all handles. Nothing is locked while its lock is held but a handle's own.
struct HandleList {
  SpinLock mutex;
  Handle* first = nullptr;
};

/// A number that its stream's thread changes for the most part, which takes no locked instruction.
class Tally {
public:
  void add(std::int64_t n, bool own_thread) noexcept {
    if (own_thread)
      own_.store(own_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    else
      others_.fetch_add(n, std::memory_order_relaxed);
  }
  std::int64_t value() const noexcept {
    return own_.load(std::memory_order_relaxed) + others_.load(std::memory_order_relaxed);
  }

private:
  std::atomic<std::int64_t> own_{0}, others_{0};
};

/// Nodes that live count here: operations without a value, and leaves made from data with their
/// bytes. One for each thread; that of a thread that has ended serves another one later.
struct Stream {
  alignas(64) std::atomic<bool> entered{false}; ///< its thread holds it (engine_lock.h)
  std::atomic<bool> updating{false};            ///< its thread gives a handle another value
  bool missed = false; ///< a node of another stream was met since; of the stream's thread
  /// A node that is recorded elsewhere is made of one that is at home here: to be looked for when
  /// values are computed here.
  std::atomic<bool> crossed{false};
  /// Handles in other streams' lists may have nodes that are at home here.
  std::atomic<bool> abroad{false};
  Stream* next = nullptr;   ///< of all streams
  std::uint64_t number = 0; ///< among all streams
  std::uint64_t traversals = 0;
  std::uint64_t next_epoch() noexcept { return number << 40 | ++traversals; }
  HandleList handles; ///< that its thread has made
  Tally operations, bytes;
  // What was left when the queue ran last, or less: of the stream's thread.
  std::int64_t operations_left = 0, bytes_left = 0;
  Triggers triggers;
  /// On which its thread has computed since sync(); 0: the one that was in use.
  std::set<std::uint16_t> devices;
  /// Values made of nothing that its thread has recorded, by their hash: without a scope or a
  /// value.
  static constexpr std::size_t kFormulas = 128;
  struct Formula {
    enum class Kind : std::uint8_t { Constant, Coordinates };
    std::shared_ptr<Node> node;
    std::uint64_t bits = 0; ///< of the constant; the axis
    Kind kind = Kind::Constant;
  };
  std::array<Formula, kFormulas> formulas;
  /// What its thread has found last in stores that all threads share; null: nothing yet.
  std::shared_ptr<RecentPlans> plans;
  std::shared_ptr<RecentDerivations> derivations;
  std::shared_ptr<Forms> forms; ///< of what its thread records
  std::shared_ptr<Walk> walk;   ///< an empty one, for its memory
};

/// This thread's; null before it needs one, and behind its end.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local Stream* own_stream = nullptr;
Stream& take_stream();
inline Stream& this_stream() {
  return own_stream ? *own_stream : take_stream();
}
/// Of all threads, and those of threads that have ended.
Stream* first_stream() noexcept;
template <class F>
void for_each_stream(F&& visit) {
  for (Stream* stream = first_stream(); stream; stream = stream->next)
    visit(*stream);
}

/// A Tensor variable of this thread has another value: computes what is due (triggers.h), and runs
/// the queue if a limit is reached. Not under any of the mutexes of nodes, handles and calls.
void statement_ended() noexcept;
/// This thread has recorded an operation: runs the queue if a limit is reached twice.
void operation_recorded(Stream& stream) noexcept;
/// This thread has read values; `computed`: some were pending. Under a QueueHold nothing is noted.
void values_read(std::span<const std::shared_ptr<Node>> roots, bool computed);

/// While one lives, its thread's queue does not run by itself: what is recorded then belongs
/// together.
class QueueHold {
public:
  QueueHold() noexcept;
  ~QueueHold();
  QueueHold(const QueueHold&) = delete;
};

} // namespace egret::detail
