// Disjoint sets of e-class ids. The oldest id of a class represents it, so that results do not
// depend on the order of unions.
#pragma once

#include "egraph/words.h"

#include <cstdint>
#include <vector>

namespace egret::egraph {

class UnionFind {
public:
  std::uint32_t make() {
    parent_.push_back(static_cast<std::uint32_t>(parent_.size()));
    return parent_.back();
  }
  /// The representative; halves the path on the way.
  std::uint32_t find(std::uint32_t id) {
    while (parent_[id] != id) {
      parent_[id] = parent_[parent_[id]];
      id = parent_[id];
    }
    return id;
  }
  std::uint32_t find(std::uint32_t id) const {
    while (parent_[id] != id)
      id = parent_[id];
    return id;
  }
  bool is_canonical(std::uint32_t id) const { return parent_[id] == id; }
  /// Joins two classes; the id that lost its place is queued in displaced().
  std::uint32_t join(std::uint32_t a, std::uint32_t b) {
    a = find(a);
    b = find(b);
    if (a == b)
      return a;
    if (b < a)
      std::swap(a, b);
    parent_[b] = a;
    displaced_.push_back(b);
    ++joins_;
    return a;
  }
  std::size_t size() const { return parent_.size(); }
  /// How many joins there were in all.
  std::uint64_t joins() const { return joins_; }
  std::size_t bytes() const { return parent_.bytes() + displaced_.capacity() * 4; }
  /// Ids that ceased to be canonical since the queue was last taken.
  std::vector<std::uint32_t>& displaced() { return displaced_; }
  const std::vector<std::uint32_t>& displaced() const { return displaced_; }

private:
  Words<std::uint32_t> parent_;
  std::vector<std::uint32_t> displaced_;
  std::uint64_t joins_ = 0;
};

} // namespace egret::egraph
