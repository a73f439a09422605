// Inputs that other languages can make too: a hash of a counter.
#include "programs.h"

#include <cmath>
#include <numeric>

namespace egret::programs {

namespace {

/// Element i of input `number` of set `set`: SplitMix64 (Steele, Lea and Flood 2014) at position
/// (1000 set + number) 2^40 + i.
std::uint64_t hashed(std::uint64_t set, std::uint64_t number, std::uint64_t i) {
  std::uint64_t z = (((1000 * set + number) << 40) + i + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

template <class T>
Tensor made(const Input& input, std::uint64_t set, std::uint64_t number) {
  const auto count = static_cast<std::size_t>(std::accumulate(
      input.shape.begin(), input.shape.end(), std::int64_t{1}, std::multiplies<>()));
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = hashed(set, number, i);
    if (input.below > 0) {
      values[i] = static_cast<T>((bits >> 33) % static_cast<std::uint64_t>(input.below));
    } else {
      const double u = static_cast<double>(bits >> 40) / (1 << 23) - 1;
      values[i] = static_cast<T>(u * input.scale + input.shift);
    }
  }
  return tensor(values, Shape(input.shape.begin(), input.shape.end())).to(input.dtype).eval();
}

} // namespace

Input data(Sizes shape, DType dtype, double scale, double shift) {
  return {std::move(shape), dtype, scale, shift, 0};
}

Input weight(Sizes shape, std::int64_t fan, DType dtype) {
  return {std::move(shape), dtype, std::sqrt(3.0 / static_cast<double>(fan)), 0, 0};
}

Input whole(Sizes shape, std::int64_t below, DType dtype) {
  return {std::move(shape), dtype, 0, 0, below};
}

Tensor make(const Input& input, std::uint64_t set, std::uint64_t number) {
  return input.below > 0 ? made<std::int64_t>(input, set, number) : made<float>(input, set, number);
}

} // namespace egret::programs
