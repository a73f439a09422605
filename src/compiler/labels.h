// Labels of axes of which some turn out to be the same.
#pragma once

#include <cstddef>
#include <vector>

namespace egret::compiler {

/// Numbers that stand for axes, or for anything else, in classes of equal ones (disjoint sets).
class Labels {
public:
  int make() {
    parent_.push_back(int(parent_.size()));
    return parent_.back();
  }
  /// The one that stands for all of its class.
  int find(int label) const {
    while (parent_[std::size_t(label)] != label) {
      int& up = parent_[std::size_t(label)];
      label = up = parent_[std::size_t(up)]; // path halving
    }
    return label;
  }
  void join(int a, int b) { parent_[std::size_t(find(a))] = find(b); }

private:
  mutable std::vector<int> parent_; ///< shortened by find()
};

} // namespace egret::compiler
