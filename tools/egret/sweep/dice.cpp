#include "sweep/dice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace egret::tool::sweep {

Dice::Dice(std::string_view kind, std::uint64_t seed, std::uint64_t index) : state_(seed) {
  for (const char letter : kind)
    state_ = bits() ^ static_cast<unsigned char>(letter);
  state_ = bits() ^ index;
  bits();
}

std::uint64_t Dice::bits() {
  state_ += 0x9e3779b97f4a7c15ull;
  std::uint64_t z = state_;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

double Dice::real() {
  return static_cast<double>(bits() >> 11) * 0x1p-53;
}

bool Dice::chance(double probability) {
  return real() < probability;
}

std::int64_t Dice::whole(std::int64_t least, std::int64_t most) {
  const auto width = static_cast<std::uint64_t>(std::max(least, most) - least) + 1;
  return least + static_cast<std::int64_t>(bits() % width);
}

// Rounded down, so that a bound on it still holds.
std::int64_t Dice::odd_or_even(std::int64_t size) {
  switch (whole(0, 3)) {
  case 0:
    return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(size)));
  case 1:
    return size > 8 ? size / 8 * 8 : size;
  case 2:
    return size % 2 == 0 && size > 1 ? size - 1 : size;
  default:
    return size;
  }
}

std::int64_t Dice::size(std::int64_t least, std::int64_t most) {
  most = std::max(least, most);
  const double low = std::log(static_cast<double>(least)),
               high = std::log(static_cast<double>(most) + 1);
  const auto drawn = static_cast<std::int64_t>(std::exp(low + real() * (high - low)));
  return std::max(least, odd_or_even(std::clamp(drawn, least, most)));
}

std::vector<std::int64_t> Dice::shape(std::int64_t rank, double most) {
  const double volume = std::log(std::max(1.0, most)) * (1 - 0.5 * real() * real());
  std::vector<double> shares;
  for (std::int64_t i = 0; i < rank; ++i)
    shares.push_back(0.1 + real());
  if (rank > 1 && chance(0.15))
    shares[static_cast<std::size_t>(whole(0, rank - 1))] = 0;
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<std::int64_t> sizes;
  for (const double share : shares)
    sizes.push_back(odd_or_even(
        std::max<std::int64_t>(1, static_cast<std::int64_t>(std::exp(volume * share / sum)))));
  return sizes;
}

std::vector<std::int64_t> Dice::order(std::int64_t count) {
  std::vector<std::int64_t> list(static_cast<std::size_t>(count));
  std::iota(list.begin(), list.end(), 0);
  for (std::size_t i = list.size(); i > 1; --i)
    std::swap(list[i - 1],
              list[static_cast<std::size_t>(whole(0, static_cast<std::int64_t>(i) - 1))]);
  return list;
}

} // namespace egret::tool::sweep
