// Random choices that depend on nothing but a kind, a seed and an index.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace egret::tool::sweep {

/// A stream of random numbers (splitmix64: Steele, Lea and Flood, "Fast Splittable Pseudorandom
/// Number Generators", 2014).
class Dice {
public:
  Dice(std::string_view kind, std::uint64_t seed, std::uint64_t index);

  std::uint64_t bits();
  double real(); ///< in [0, 1)
  bool chance(double probability);
  std::int64_t whole(std::int64_t least, std::int64_t most); ///< both included, each as likely
  /// A size from `least` to `most`, each magnitude as likely: powers of two, multiples of 8, odd
  /// ones and any.
  std::int64_t size(std::int64_t least, std::int64_t most);
  /// So many sizes with a product of at most `most`, of large ones more often than of small ones;
  /// now and then one of them is 1.
  std::vector<std::int64_t> shape(std::int64_t rank, double most);
  std::vector<std::int64_t> order(std::int64_t count); ///< 0 .. count-1 in random order
  template <class T>
  const T& one_of(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(whole(0, static_cast<std::int64_t>(list.size()) - 1))];
  }

private:
  std::int64_t odd_or_even(std::int64_t size);
  std::uint64_t state_;
};

} // namespace egret::tool::sweep
