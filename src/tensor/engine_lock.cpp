#include "tensor/engine_lock.h"

#include "tensor/node.h"
#include "tensor/queue.h"

#include <thread>

namespace egret::detail {
namespace {

// Where threads wait until another one has computed something.
struct alignas(64) Landings {
  std::atomic<int> waiters{0};
  std::atomic<std::uint32_t> count{0};
};

Landings& landings() noexcept {
  static auto* const all = new Landings; // outlives tensors of static duration
  return *all;
}

// `unlock` and `lock` are of what the thread holds: whoever computes what it waits for lands it
// under a lock that waits for this one to be let go.
template <class Unlock, class Lock>
void wait_between(Unlock unlock, Lock lock) {
  Landings& all = landings();
  all.waiters.fetch_add(1);
  const std::uint32_t seen = all.count.load();
  unlock();
  all.count.wait(seen);
  all.waiters.fetch_sub(1);
  lock();
}

} // namespace

EngineMutex& engine_mutex() noexcept {
  static auto* const mutex = new EngineMutex(&Stream::entered); // outlives static tensors
  return *mutex;
}

// Of this thread's `wanted_` and a stream's flag, each written before the other is read, one is
// seen by the other side.
void StreamsMutex::lock() {
  mutex_.lock();
  wanted_.store(true, std::memory_order_seq_cst);
  for_each_stream([&](const Stream& stream) {
    while ((stream.*entered_).load(std::memory_order_seq_cst))
      std::this_thread::yield(); // for as long as a lookup takes
  });
}

bool StreamsMutex::try_lock() noexcept {
  if (!mutex_.try_lock())
    return false;
  wanted_.store(true, std::memory_order_seq_cst);
  bool any = false;
  for_each_stream([&](const Stream& stream) {
    any = any || (stream.*entered_).load(std::memory_order_seq_cst);
  });
  if (any)
    unlock();
  return !any;
}

void StreamsMutex::unlock() noexcept {
  wanted_.store(false, std::memory_order_seq_cst);
  mutex_.unlock();
}

void StreamsMutex::enter(Stream& stream) {
  std::atomic<bool>& entered = stream.*entered_;
  entered.store(true, std::memory_order_seq_cst);
  if (!wanted_.load(std::memory_order_seq_cst)) [[likely]]
    return;
  entered.store(false, std::memory_order_seq_cst);
  std::lock_guard lock(mutex_); // nobody wants all parts while this thread has it
  entered.store(true, std::memory_order_seq_cst);
}

void StreamsMutex::leave(Stream& stream) noexcept {
  (stream.*entered_).store(false, std::memory_order_release);
}

EngineLock::EngineLock() : stream_(this_stream()) {
  take();
}

EngineLock::EngineLock(const Node& node) : stream_(this_stream()) {
  take();
  if (!within_reach(node))
    widen();
}

void EngineLock::take() {
  if (all_) {
    engine_mutex().lock();
    return;
  }
  engine_mutex().enter(stream_);
  stream_.missed = false;
  held_stream = &stream_;
}

void EngineLock::release() noexcept {
  if (all_) {
    engine_mutex().unlock();
    return;
  }
  held_stream = nullptr;
  engine_mutex().leave(stream_);
}

bool EngineLock::missed() const noexcept {
  return !all_ && stream_.missed;
}

void EngineLock::widen() {
  if (all_)
    return;
  release();
  all_ = true;
  take();
}

void EngineLock::wait_for_others() {
  wait_between([this] { release(); }, [this] { take(); });
}

void wait_for_others(std::unique_lock<EngineMutex>& lock) {
  wait_between([&] { lock.unlock(); }, [&] { lock.lock(); });
}

void tell_others() noexcept {
  Landings& all = landings();
  if (all.waiters.load() == 0) // who waits said so under a lock that was let go before
    return;
  all.count.fetch_add(1);
  all.count.notify_all();
}

} // namespace egret::detail
