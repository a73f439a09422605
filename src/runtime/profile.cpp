#include "runtime/profile.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

namespace egret::runtime {
namespace {

// A flag beside the list: what nobody observes costs a load.
std::atomic<bool>& any_observer() {
  static std::atomic<bool> flag{false};
  return flag;
}
std::mutex& observers_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}
Observers& observers_place() {
  static auto* const place = new Observers;
  return *place;
}

/// Puts another list in place of the one that threads may be going through.
template <class Change>
void change_observers(Change&& change) {
  std::lock_guard lock(observers_mutex());
  Observers& place = observers_place();
  auto list = place ? *place : std::vector<std::shared_ptr<const Observer>>();
  change(list);
  place = list.empty() ? nullptr : std::make_shared<const decltype(list)>(std::move(list));
  any_observer().store(place != nullptr, std::memory_order_release);
}

} // namespace

Observing::Observing(Observer observer)
    : observer_(std::make_shared<const Observer>(std::move(observer))) {
  change_observers([&](auto& list) { list.push_back(observer_); });
}

Observing::~Observing() {
  change_observers([&](auto& list) { std::erase(list, observer_); });
}

Observers observers() {
  if (!any_observer().load(std::memory_order_acquire))
    return nullptr;
  std::lock_guard lock(observers_mutex());
  return observers_place();
}

void observed_copy(const std::function<std::string()>& what, std::size_t bytes,
                   const std::function<void()>& copy) {
  const Observers seen = observers();
  if (!seen)
    return copy();
  const auto begin = std::chrono::steady_clock::now();
  copy();
  tell(seen, &Observer::copy, CopyRecord{what(), bytes, begin, std::chrono::steady_clock::now()});
}

bool launches_are_seen(const Observers& observers) {
  return observers && std::ranges::any_of(*observers, [](const auto& observer) {
           return observer->launch != nullptr;
         });
}

} // namespace egret::runtime
