// Reductions that go along with one that they depend on, in the same loops: the sum of an online
// softmax beside its running maximum (Milakov and Gimelshein, "Online Normalizer Calculation for
// Softmax", 2018), and the sum of squared deviations beside the sum for its mean (Welford 1962).
#pragma once

#include "kernel/loops/paths.h"

#include <map>
#include <set>

namespace egret::kernel::loops {

/// Of a tree whose bodies stand at `paths`: by reduction, the one that its body reads while both
/// are being accumulated.
struct OnlineSums {
  std::map<int, int> maxima; ///< of sums of exp(x - m) y, the maximum m of x: as it grows, the sum
                             ///< is rescaled (is_scaled_by)
  std::map<int, int> means;  ///< of sums of (x - mean)^2, the sum for the mean (is_spread_of)
  /// Of the same: maps of the sum for the mean by which its body reads it. A running mean takes
  /// their place.
  std::map<int, std::set<int>> between;

  bool contains(int stage, int source) const;
  bool goes_between(int stage, int map) const;
};
OnlineSums online_sums(const Region& region, const std::vector<Path>& paths);

/// Why the sum of `stage` cannot go along with the maximum `source`; empty when it can. The maximum
/// has one accumulator, which is around those of the sum, and neither is made in parts.
std::string why_not_rescaled(const Region& region, const std::vector<Path>& paths, int stage,
                             int source);

} // namespace egret::kernel::loops
