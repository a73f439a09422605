// Orders and sizes of loops: every legal point over a skeleton, by the roles that loops play, each
// with its estimate.
#pragma once

#include "loops/estimate.h"
#include "loops/nests.h"
#include "loops/options.h"

#include <functional>
#include <vector>

namespace egret::loops {

struct Sized {
  TreePtr tree;
  double seconds = 0;
};

struct SizesOptions {
  std::size_t keep = 24;          ///< trees at the most, best first
  std::size_t most_points = 9000; ///< bodies with loops around that are estimated
  bool reassociate = true;
  std::function<bool()> stop; ///< asked now and then
};

/// Trees over the nests, best first. `points` counts what was estimated.
std::vector<Sized> sizes_of(const kernel::Region& region, const kernel::Target& target,
                            const std::vector<Nest>& nests, Estimator& estimator,
                            const SizesOptions& options, std::size_t& points);

} // namespace egret::loops
