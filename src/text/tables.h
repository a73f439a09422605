// Hash tables for vocabularies: flat, built once, read by many threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace egret::text {

using Id = std::int32_t;
inline constexpr Id kMostIds = 1 << 22; ///< no vocabulary is as large
/// Of a token that is looked for at each place of a text; published ones have at most some hundred.
inline constexpr std::size_t kMostTokenBytes = 1024;

/// 64-bit keys to 64-bit values, by linear probing. The key ~0 is reserved.
class KeyTable {
public:
  explicit KeyTable(std::size_t expected = 0);
  /// The value, or nothing.
  const std::uint64_t* find(std::uint64_t key) const {
    for (std::size_t at = slot(key);; at = (at + 1) & mask_) {
      if (entries_[at].key == key)
        return &entries_[at].value;
      if (entries_[at].key == kFree)
        return nullptr;
    }
  }
  /// The value of a key; a new one gets `value`. True as second when it was new.
  std::pair<std::uint64_t*, bool> insert(std::uint64_t key, std::uint64_t value);
  std::size_t size() const { return size_; }

private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  struct Entry {
    std::uint64_t key = kFree, value = 0;
  };
  std::size_t slot(std::uint64_t key) const { return (key * 0x9e3779b97f4a7c15U) >> shift_; }
  void grow();

  std::vector<Entry> entries_;
  std::size_t mask_ = 0, size_ = 0;
  unsigned shift_ = 0;
};

/// Tokens by text and by id.
class Vocabulary {
public:
  /// False when the text has an id or the id a text already.
  bool add(std::string_view token, Id id);
  std::optional<Id> find(std::string_view token) const;
  std::optional<std::string_view> token(Id id) const;        ///< nothing for an id without a token
  std::size_t size() const { return count_; }                ///< tokens
  Id end() const { return static_cast<Id>(places_.size()); } ///< one more than the largest id

private:
  struct Place {
    std::uint32_t begin = 0, bytes = kNone;
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  };
  std::string_view text(Place p) const { return std::string_view(texts_).substr(p.begin, p.bytes); }
  void rehash(std::size_t slots);

  std::string texts_;
  std::vector<Place> places_; ///< by id
  std::vector<Id> slots_;     ///< by hash, -1 when free
  std::size_t count_ = 0;
};

/// Byte strings with a value each; finds those that are prefixes of a text.
class Trie {
public:
  void add(std::string_view key, std::uint32_t value); ///< the first value of a key stays
  bool empty() const { return nodes_.size() == 1; }
  /// Calls `visit(bytes, value)` with each key that `text` begins with, shorter ones first.
  template <class Visit>
  void prefixes(std::string_view text, Visit&& visit) const {
    std::uint64_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const std::uint64_t* next = edges_.find(node << 8 | static_cast<unsigned char>(text[i]));
      if (next == nullptr)
        return;
      node = *next;
      if (nodes_[node] != kNone)
        visit(i + 1, nodes_[node]);
    }
  }
  bool starts(char byte) const { return first_[static_cast<unsigned char>(byte)]; }

private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  KeyTable edges_;
  std::vector<std::uint32_t> nodes_ = {kNone}; ///< the value that ends there
  bool first_[256] = {};
};

} // namespace egret::text
