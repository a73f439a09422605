// Interned values. A value is 32 bits wide; what they mean depends on the sort: an e-class id, a
// small number in place, or the index of something kept here. Equal things have equal bits, so that
// joins and keys compare words.
#pragma once

#include "egraph/bigint.h"
#include "egraph/flat_map.h"

#include "egret/egraph.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace egret::egraph {

/// Bytes that a value holds outside of itself.
inline std::size_t bytes_outside(const std::string& text) {
  return text.capacity() < sizeof(std::string) / 2 ? 0 : text.capacity();
}
inline std::size_t bytes_outside(const BigInt& x) {
  return static_cast<std::size_t>((x.bits() + 31) / 32 * 4);
}
inline std::size_t bytes_outside(const BigRat& x) {
  return bytes_outside(x.numerator()) + bytes_outside(x.denominator());
}
template <class T>
requires std::is_arithmetic_v<T> std::size_t bytes_outside(T) {
  return 0;
}

/// Interns values of T, numbered in the order of their first appearance.
template <class T, class Hash = std::hash<T>>
class Interner {
public:
  Value intern(const T& item) {
    auto [at, added] = ids_.try_emplace(item, static_cast<Value>(items_.size()));
    if (added) {
      items_.push_back(item);
      outside_ += 2 * bytes_outside(item); // here and in the map
    }
    return at->second;
  }
  std::size_t bytes() const {
    constexpr std::size_t kNode = 2 * sizeof(void*) + sizeof(std::size_t); // of the map
    return items_.capacity() * sizeof(T) + ids_.size() * (sizeof(T) + kNode) + outside_;
  }
  const T& operator[](Value id) const { return items_[id]; }
  std::size_t size() const { return items_.size(); }

private:
  std::vector<T> items_;
  std::unordered_map<T, Value, Hash> ids_;
  std::size_t outside_ = 0; ///< bytes that items hold elsewhere
};

/// Interned sequences of values: the contents of the containers of one sort. What a sequence means
/// (elements, sorted elements, key-value pairs) is up to the sort.
class ContainerPool {
public:
  Value intern(std::span<const Value> content);
  std::span<const Value> operator[](Value id) const {
    return {words_.data() + begins_[id], begins_[id + 1] - begins_[id]};
  }
  std::size_t size() const { return begins_.size() - 1; }
  /// The container that now stands for `id`, after the ids inside it were joined with others.
  Value current(Value id) const;
  void forward(Value from, Value to);
  bool is_current(Value id) const { return forward_[id] == id; }
  std::size_t bytes() const;

  /// Calls `visit(id)` for every container whose content has the word `word` (and perhaps for some
  /// twice), found by an index that takes in what is new first.
  template <class Visit>
  void for_each_with(Value word, const Visit& visit) {
    index_words();
    for (std::uint32_t at = with_word_.find(word); at != FlatMap32::kNone; at = next_with_[at])
      visit(owners_[at]);
  }
  /// How many containers there were at the last call, for the caller's own use.
  std::size_t exchange_seen(std::size_t count) { return std::exchange(seen_, count); }

private:
  void index_words();

  std::vector<Value> words_;
  std::vector<std::uint64_t> begins_{0};
  std::vector<Value> forward_;
  std::unordered_multimap<std::uint64_t, Value> by_hash_;
  // For every word of words_: the container it is in, and the next place with the same word.
  FlatMap32 with_word_;
  std::vector<Value> owners_;
  std::vector<std::uint32_t> next_with_;
  std::size_t seen_ = 0;
};

struct BigIntHash {
  std::size_t operator()(const BigInt& x) const { return x.hash(); }
};
struct BigRatHash {
  std::size_t operator()(const BigRat& x) const { return x.hash(); }
};

/// Every pool of an e-graph, and the coding of numbers.
class Pools {
public:
  Value from_i64(std::int64_t x) {
    // The order of values is seen by programs (the elements of a set are numbered in it): small
    // numbers from zero on are themselves, all others follow in the order of their appearance.
    if (x >= 0 && x < std::int64_t{kInterned})
      return static_cast<Value>(x);
    return integers_.intern(x) | kInterned;
  }
  std::int64_t to_i64(Value v) const {
    return v & kInterned ? integers_[v & ~kInterned] : std::int64_t{v};
  }
  /// Values that compare equal are one, so -0.0 becomes 0.0; NaNs are one, too.
  Value from_f64(double x);
  double to_f64(Value v) const;
  Value from_string(std::string_view text) { return strings_.intern(std::string(text)); }
  const std::string& to_string(Value v) const { return strings_[v]; }
  Value from_big(const BigInt& x) { return bigs_.intern(x); }
  const BigInt& to_big(Value v) const { return bigs_[v]; }
  Value from_rat(const BigRat& x) { return rats_.intern(x); }
  const BigRat& to_rat(Value v) const { return rats_[v]; }

  ContainerPool& containers(std::uint32_t sort) {
    if (containers_.size() <= sort)
      containers_.resize(sort + 1);
    return containers_[sort];
  }
  const ContainerPool& containers(std::uint32_t sort) const { return containers_[sort]; }
  bool has_containers(std::uint32_t sort) const { return sort < containers_.size(); }
  std::size_t bytes() const;

private:
  static constexpr Value kInterned = 0x80000000u;
  Interner<std::int64_t> integers_;
  Interner<std::uint64_t> reals_;
  Interner<std::string> strings_;
  Interner<BigInt, BigIntHash> bigs_;
  Interner<BigRat, BigRatHash> rats_;
  std::vector<ContainerPool> containers_;
};

} // namespace egret::egraph
