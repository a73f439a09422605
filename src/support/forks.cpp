#include "support/forks.h"

#include <atomic>
#include <pthread.h>

namespace egret {
namespace {

std::atomic<std::uint32_t> forks_until_now{0};

} // namespace

std::uint32_t forks() noexcept {
  static const int watched = ::pthread_atfork(
      nullptr, nullptr, [] { forks_until_now.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(watched); // without memory for it, forked processes start no threads anew
  return forks_until_now.load(std::memory_order_relaxed);
}

} // namespace egret
