// A lock for what takes well under a microsecond most of the time, and now and then much longer.
#pragma once

#include <mutex>

namespace egret {

/// As std::mutex; who finds it taken looks again for about as long as it takes to fall asleep and
/// be woken, before he does.
class AdaptiveMutex {
public:
  void lock() {
    for (int looks = 0; looks < kLooks; ++looks) {
      if (mutex_.try_lock())
        return;
      relax();
    }
    mutex_.lock();
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() noexcept { mutex_.unlock(); }

private:
  static constexpr int kLooks = 64;
  static void relax() noexcept {
    for (int i = 0; i < 8; ++i) {
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield");
#endif
    }
  }
  std::mutex mutex_;
};

} // namespace egret
