#include "egraph/pools.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace egret::egraph {

Value ContainerPool::intern(std::span<const Value> content) {
  std::uint64_t hash = XXH3_64bits(content.data(), content.size_bytes());
  auto [first, last] = by_hash_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    std::span<const Value> other = (*this)[at->second];
    if (std::equal(content.begin(), content.end(), other.begin(), other.end()))
      return at->second;
  }
  Value id = static_cast<Value>(size());
  // `content` may view this very pool: growing must not invalidate what is copied.
  std::vector<Value> copy(content.begin(), content.end());
  words_.insert(words_.end(), copy.begin(), copy.end());
  begins_.push_back(words_.size());
  forward_.push_back(id);
  by_hash_.emplace(hash, id);
  return id;
}

Value ContainerPool::current(Value id) const {
  while (forward_[id] != id)
    id = forward_[id];
  return id;
}

void ContainerPool::forward(Value from, Value to) {
  forward_[from] = to;
}

void ContainerPool::index_words() {
  if (next_with_.size() == words_.size())
    return;
  Value id = owners_.empty() ? 0 : owners_.back() + 1;
  for (; id < size(); ++id) {
    for (std::uint64_t at = begins_[id]; at < begins_[id + 1]; ++at) {
      std::uint32_t& head = with_word_.at(words_[at]);
      next_with_.push_back(head);
      owners_.push_back(id);
      head = static_cast<std::uint32_t>(at);
    }
  }
}

std::size_t ContainerPool::bytes() const {
  return words_.capacity() * sizeof(Value) + begins_.capacity() * 8 + by_hash_.size() * 40 +
         with_word_.bytes() +
         (owners_.capacity() + next_with_.capacity() + forward_.capacity()) * 4;
}

std::size_t Pools::bytes() const {
  std::size_t total =
      integers_.bytes() + reals_.bytes() + strings_.bytes() + bigs_.bytes() + rats_.bytes();
  for (const ContainerPool& pool : containers_)
    total += pool.bytes();
  return total;
}

Value Pools::from_f64(double x) {
  if (std::isnan(x))
    x = std::numeric_limits<double>::quiet_NaN();
  if (x == 0)
    x = 0; // -0.0 too: values that compare equal are one
  return reals_.intern(std::bit_cast<std::uint64_t>(x));
}

double Pools::to_f64(Value v) const {
  return std::bit_cast<double>(reals_[v]);
}

} // namespace egret::egraph
