// Byte order: files say theirs, memory is little-endian.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>

namespace egret::io {

static_assert(std::endian::native == std::endian::little, "egret reads and writes memory as it is");

/// Reverses the bytes of each element of `size` bytes.
inline void reverse_bytes(std::span<std::byte> bytes, std::size_t size) {
  if (size > 1)
    for (std::size_t at = 0; at + size <= bytes.size(); at += size)
      std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                   bytes.begin() + static_cast<std::ptrdiff_t>(at + size));
}

} // namespace egret::io
