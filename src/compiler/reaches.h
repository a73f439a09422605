// Paths between numbered things of which each knows those that follow it.
#pragma once

#include <cstddef>
#include <vector>

namespace egret::compiler {

/// Whether `to` can be had from `from` by going to what follows, also when they are the same.
/// `next`: by number, a range of numbers.
template <class Next>
bool reaches(const std::vector<Next>& next, int from, int to) {
  std::vector<bool> seen(next.size(), false);
  std::vector<int> work{from};
  while (!work.empty()) {
    const int at = work.back();
    work.pop_back();
    if (at == to)
      return true;
    for (const int n : next[static_cast<std::size_t>(at)])
      if (!seen[static_cast<std::size_t>(n)]) {
        seen[static_cast<std::size_t>(n)] = true;
        work.push_back(n);
      }
  }
  return false;
}

} // namespace egret::compiler
