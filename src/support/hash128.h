// A hash of 128 bits, for names of things that are taken for equal when their hashes are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace egret {

struct Hash128 {
  std::uint64_t high = 0, low = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
  std::string hex() const; ///< 32 digits
};

/// XXH3 of the bytes; the same in every process and on every machine.
Hash128 hash128(std::string_view bytes) noexcept;

} // namespace egret
