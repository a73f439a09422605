// Who may look at nodes: each thread at those of its own stream, at the same time as others at
// theirs, or one thread at all of them.
//
// Every node is at home in one stream (Node::home): that of the thread that made it, later that of
// the thread that last evaluated it together with its own. A thread that holds its stream may use
// the fields marked (lock) of the nodes at home there; one that holds the engine_mutex(), those of
// all nodes, and only then a home changes. So threads whose values have nothing to do with each
// other never wait for each other, and those that share values do so only for each evaluation that
// meets a value of another stream. Updates of handles and calls of compiled functions exclude each
// other in the same way (owners.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace egret::detail {

struct Node;
struct Stream;

/// Held by one thread while no other is in its own stream's part. Neither is recursive.
class alignas(64) StreamsMutex {
public:
  /// `entered`: a stream's flag for this mutex.
  explicit StreamsMutex(std::atomic<bool> Stream::*entered) noexcept : entered_(entered) {}
  void lock();
  bool try_lock() noexcept; ///< false, too, while a thread is in its part
  void unlock() noexcept;
  /// This thread's part: what it does there waits only for who has all. Writes nothing that other
  /// threads write.
  void enter(Stream& stream);
  void leave(Stream& stream) noexcept;

private:
  std::atomic<bool> Stream::*const entered_;
  std::mutex mutex_;
  std::atomic<bool> wanted_{false}; ///< by the thread that has mutex_: no part may be entered
};

/// Held: the fields marked (lock) of all nodes are this thread's.
using EngineMutex = StreamsMutex;
EngineMutex& engine_mutex() noexcept;

/// Of the thread's stream while only that one is held; null: whatever is held is all nodes.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local Stream* held_stream = nullptr;

/// Whether the fields marked (lock) of a node may be used. Remembers, for EngineLock::missed(), if
/// not. (node.h)
bool within_reach(const Node& node) noexcept;

/// Holds this thread's stream, or all nodes.
class EngineLock {
public:
  EngineLock(); ///< this thread's stream
  /// What is needed for the fields of one node.
  explicit EngineLock(const Node& node);
  ~EngineLock() { release(); }
  EngineLock(const EngineLock&) = delete;

  /// Whether something out of reach was met since the lock was taken: what was done is void, and is
  /// to be done again after widen().
  bool missed() const noexcept;
  /// From this stream to all nodes, none being held meanwhile.
  void widen();
  bool has_all() const noexcept { return all_; }
  /// Lets go until some thread has computed something.
  void wait_for_others();

private:
  void take();
  void release() noexcept;

  Stream& stream_;
  bool all_ = false;
};

/// Waits until some thread has computed something. `lock` is of engine_mutex(), and let go
/// meanwhile.
void wait_for_others(std::unique_lock<EngineMutex>& lock);
/// Tells who waits. Behind the lock under which something was computed.
void tell_others() noexcept;

} // namespace egret::detail
