// Hashing that gives the same numbers in every process and on every machine, for keys that outlive
// a run.
#pragma once

#include <cstdint>
#include <string_view>

namespace egret {

/// A word spread over all 64 bits (the finalizer of splitmix64).
constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// The hash of a sequence `seed` extended by `value`; the order of values matters.
constexpr std::uint64_t combine(std::uint64_t seed, std::uint64_t value) noexcept {
  return mix(seed * 0x9e3779b97f4a7c15u + value + 0x632be59bd9b4e019u);
}

constexpr std::uint64_t hash_text(std::string_view text) noexcept {
  std::uint64_t h = 0xcbf29ce484222325u + text.size();
  for (char c : text)
    h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return mix(h);
}

} // namespace egret
