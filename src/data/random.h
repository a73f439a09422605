// Random numbers for shuffles and positions: the same on every machine.
#pragma once

#include <cstdint>

namespace egret::data {

/// splitmix64 (Steele, Lea and Flood 2014).
inline std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15U;
  z = (z ^ z >> 30U) * 0xbf58476d1ce4e5b9U;
  z = (z ^ z >> 27U) * 0x94d049bb133111ebU;
  return z ^ z >> 31U;
}

/// Uniform below `bound`, by rejection of the incomplete last round.
inline std::uint64_t random_below(std::uint64_t& state, std::uint64_t bound) {
  std::uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  std::uint64_t value = next_random(state);
  while (value >= limit)
    value = next_random(state);
  return value % bound;
}

} // namespace egret::data
