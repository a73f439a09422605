#include "runtime/profile.h"

#include <atomic>
#include <memory>
#include <mutex>

namespace egret::runtime {
namespace {

using Hook = std::function<void(const LaunchRecord&)>;

// A flag beside the hook: a launch without one costs a load.
std::atomic<bool>& has_hook() {
  static std::atomic<bool> flag{false};
  return flag;
}
std::mutex& hook_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::shared_ptr<const Hook>& hook_place() {
  static std::shared_ptr<const Hook> hook;
  return hook;
}

} // namespace

void set_launch_hook(Hook hook) {
  std::lock_guard lock(hook_mutex());
  hook_place() = hook ? std::make_shared<const Hook>(std::move(hook)) : nullptr;
  has_hook().store(hook_place() != nullptr, std::memory_order_release);
}

std::shared_ptr<const Hook> launch_hook() {
  if (!has_hook().load(std::memory_order_acquire))
    return nullptr;
  std::lock_guard lock(hook_mutex());
  return hook_place();
}

} // namespace egret::runtime
