// A lock for what takes a few instructions.
#pragma once

#include <atomic>
#include <thread>

namespace egret {

/// As std::mutex, where what it guards neither waits, nor allocates, nor calls anything that may:
/// to take it when it is free is one exchange, to let it go is a store. Who finds it taken for long
/// yields.
class SpinLock {
public:
  void lock() noexcept {
    while (taken_.exchange(true, std::memory_order_acquire))
      for (int spins = 0; taken_.load(std::memory_order_relaxed); ++spins)
        if (spins > 64)
          std::this_thread::yield();
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

private:
  std::atomic<bool> taken_{false};
};

} // namespace egret
