#include "tensor/owners.h"

#include "tensor/node.h"

#include <unordered_map>

namespace egret::detail {

namespace {

struct Registered {
  Owner* owner;
  std::weak_ptr<Owner> shared;
};

// (calls_mutex) By address. Whatever stands in it has a handle that is watched, or is being bound
// by rebind_watched().
std::unordered_map<const Tensor*, Registered>& registered() {
  static auto* const all = new std::unordered_map<const Tensor*, Registered>;
  return *all; // outlives tensors of static duration
}

void forget(const Tensor* object) { // needs calls_mutex
  const auto found = registered().find(object);
  if (found == registered().end())
    return;
  found->second.owner->object = nullptr;
  registered().erase(found);
}

} // namespace

StreamsMutex& calls_mutex() noexcept {
  static auto* const mutex = new StreamsMutex(&Stream::updating);
  return *mutex;
}

Updating::Updating() : stream_(this_stream()) {
  calls_mutex().enter(stream_);
}
Updating::~Updating() {
  calls_mutex().leave(stream_);
}

Owner::~Owner() {
  std::lock_guard lock(calls_mutex());
  if (!object)
    return;
  const auto found = registered().find(object);
  if (found != registered().end() && found->second.owner == this)
    registered().erase(found); // it may be another one's by now
}

OwnerPtr watch(const Tensor& object) {
  auto fresh = std::make_shared<Owner>(nullptr); // dropped after the lock if it is not needed
  std::lock_guard lock(calls_mutex());
  if (const auto& handle = Access::handle(object))
    handle->watched.store(true);
  auto [at, added] = registered().try_emplace(&object);
  if (!added)
    if (OwnerPtr known = at->second.shared.lock())
      return known;
  fresh->object = &object;
  at->second = {fresh.get(), fresh};
  return fresh;
}

void object_gone(const Tensor* object) noexcept {
  std::lock_guard lock(calls_mutex());
  forget(object);
}

void rebind_watched(Tensor& object, std::shared_ptr<Handle>& handle) noexcept {
  std::lock_guard lock(calls_mutex());
  if (registered().contains(&object)) {
    if (handle)
      handle->watched.store(true);
    else
      forget(&object);
  }
  Access::bind(object, handle);
}

} // namespace egret::detail
