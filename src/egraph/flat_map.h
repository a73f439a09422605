// A small open-addressing map from 32-bit keys to 32-bit values, for indexes. Iteration order is
// never exposed.
#pragma once

#include "egraph/words.h"

#include <cstdint>

namespace egret::egraph {

/// Spreads a 32-bit key over 32 bits (a multiply and a fold, after Fibonacci hashing).
inline std::uint32_t mix32(std::uint32_t key) {
  std::uint64_t product = std::uint64_t{key} * 0x9E3779B97F4A7C15u;
  return static_cast<std::uint32_t>(product >> 32) ^ static_cast<std::uint32_t>(product);
}

/// Adds one more word to a hash.
inline std::uint32_t mix32(std::uint32_t seed, std::uint32_t key) {
  return mix32((seed ^ key) + 0x7F4A7C15u * (seed >> 15 | 1));
}

/// Where the hash of the key of an index on several columns starts.
inline constexpr std::uint32_t kIndexSeed = 0x6C8E9CF5u;

/// Map without removal; the value kNone stands for "absent".
class FlatMap32 {
public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  std::uint32_t find(std::uint32_t key) const {
    if (slots_.empty())
      return kNone;
    for (std::uint32_t i = mix32(key) & mask_;; i = (i + 1) & mask_) {
      if (slots_[i].value == kNone || slots_[i].key == key)
        return slots_[i].value;
    }
  }
  /// The value of `key`, made kNone first if absent; assign it at once.
  std::uint32_t& at(std::uint32_t key) {
    if ((size_ + 1) * 3 > slots_.size() * 2)
      grow();
    std::uint32_t i = mix32(key) & mask_;
    while (slots_[i].value != kNone && slots_[i].key != key)
      i = (i + 1) & mask_;
    if (slots_[i].value == kNone) {
      slots_[i].key = key;
      ++size_;
    }
    return slots_[i].value;
  }
  void prefetch(std::uint32_t key) const {
    if (!slots_.empty())
      __builtin_prefetch(&slots_[mix32(key) & mask_]);
  }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return slots_.bytes(); }
  void clear() {
    slots_ = {};
    size_ = 0;
    mask_ = 0;
  }

private:
  struct Slot {
    std::uint32_t key = 0;
    std::uint32_t value = kNone;
  };
  void grow() {
    Words<Slot> old = std::move(slots_);
    slots_.assign(old.empty() ? 16 : old.size() * 2, Slot{});
    mask_ = static_cast<std::uint32_t>(slots_.size() - 1);
    for (const Slot& slot : old) {
      if (slot.value == kNone)
        continue;
      std::uint32_t i = mix32(slot.key) & mask_;
      while (slots_[i].value != kNone)
        i = (i + 1) & mask_;
      slots_[i] = slot;
    }
  }
  Words<Slot> slots_;
  std::size_t size_ = 0;
  std::uint32_t mask_ = 0;
};

} // namespace egret::egraph
