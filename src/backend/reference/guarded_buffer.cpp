#include "backend/reference/guarded_buffer.h"

#include <algorithm>

namespace egret::backend::reference {

GuardedBuffer::GuardedBuffer(std::size_t bytes, std::int64_t alignment, std::byte fill)
    : storage_(bytes + 4 * kZone, kGuard), bytes_(bytes) {
  const auto base = reinterpret_cast<std::uintptr_t>(storage_.data());
  const auto odd = static_cast<std::size_t>(std::clamp<std::int64_t>(alignment, 1, kZone)) % kZone;
  start_ = kZone + (kZone - base % kZone) % kZone + odd; // of the next page, and off it
  std::fill_n(data(), bytes, fill);
}

std::int64_t GuardedBuffer::damage() const {
  for (std::size_t i = start_ + bytes_; i < storage_.size(); ++i)
    if (storage_[i] != kGuard)
      return static_cast<std::int64_t>(i - start_);
  for (std::size_t i = start_; i-- > 0;)
    if (storage_[i] != kGuard)
      return static_cast<std::int64_t>(i) - static_cast<std::int64_t>(start_);
  return 0;
}

} // namespace egret::backend::reference
