#include "support/warn.h"

#include <mutex>
#include <utility>

namespace egret {
namespace {

struct Listener {
  std::mutex guard;
  std::function<void(const std::string&)> hook;
};

// Never destroyed, so that what ends late may still warn.
Listener& listener() {
  static auto* const one = new Listener;
  return *one;
}

} // namespace

void on_warning(std::function<void(const std::string& text)> hook) {
  std::lock_guard lock(listener().guard);
  listener().hook = std::move(hook);
}

void give_warning(const std::string& text) {
  std::lock_guard lock(listener().guard);
  if (listener().hook)
    listener().hook(text);
}

} // namespace egret
