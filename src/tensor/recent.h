// What a thread found last in a store that all threads share, so that a loop which comes to the
// same again and again writes nothing that other threads read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace egret::detail {

/// Values by words and the hash of them; the newest one of a slot stays. Of one thread.
template <class Value, std::size_t kSlots>
class Recent {
public:
  using Words = std::vector<std::uint64_t>;
  Value* find(std::uint64_t key, const Words& words) noexcept {
    Slot& slot = slots_[key % kSlots];
    return slot.key == key && slot.words == words ? &slot.value : nullptr;
  }
  Value& put(std::uint64_t key, const Words& words, Value value) {
    Slot& slot = slots_[key % kSlots];
    slot.words = words;
    slot.key = key;
    slot.value = std::move(value);
    return slot.value;
  }

  void clear() noexcept { slots_ = {}; }

private:
  struct Slot {
    std::uint64_t key = 0;
    Words words;
    Value value;
  };
  std::array<Slot, kSlots> slots_;
};

/// A pointer to the same object with a count of owners of its own: copies of it touch no other one.
template <class T>
std::shared_ptr<T> own_count(std::shared_ptr<T> shared) {
  auto owner = std::make_shared<std::shared_ptr<T>>(std::move(shared));
  T* const object = owner->get();
  return {std::move(owner), object};
}

} // namespace egret::detail
