// Memory between guard zones, for finding writes out of bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace egret::backend::reference {

class GuardedBuffer {
public:
  /// `bytes` at an address that `alignment` (a power of two up to 4096) divides and that no larger
  /// power of two up to 4096 does, filled with `fill`.
  GuardedBuffer(std::size_t bytes, std::int64_t alignment, std::byte fill);

  std::byte* data() { return storage_.data() + start_; }
  const std::byte* data() const { return storage_.data() + start_; }
  std::size_t size() const { return bytes_; }
  /// Distance from data() of the first guard byte that was overwritten (negative: before it); 0
  /// when all are whole.
  std::int64_t damage() const;

private:
  static constexpr std::size_t kZone = 4096;
  static constexpr std::byte kGuard{0xC3};

  std::vector<std::byte> storage_;
  std::size_t start_, bytes_;
};

} // namespace egret::backend::reference
