// Orders and sizes of loops: every legal point over a skeleton, by the roles that loops play, each
// with its estimate.
#pragma once

#include "kernel/loops/estimate.h"
#include "loops/nests.h"
#include "loops/options.h"

#include <functional>
#include <vector>

namespace egret::loops {

using kernel::loops::Estimator;
using kernel::loops::LoopAround;
using kernel::loops::NearAround;

/// What a tree is like as a whole. Estimates of different ways are less sure beside each other than
/// those of one way.
enum class Way : std::uint8_t { Plain, Rows, Results, Parts, Matrices, MatrixParts, Drawn };

struct Sized {
  TreePtr tree;
  double seconds = 0;
  Way way = Way::Plain;
};

struct SizesOptions {
  std::size_t keep = 24;          ///< trees of each way at the most
  std::size_t most_points = 9000; ///< bodies with loops around that are estimated
  bool reassociate = true;
  std::function<bool()> stop; ///< asked now and then
};

/// Trees over the nests, best first. `points` counts what was estimated.
std::vector<Sized> sizes_of(const kernel::Region& region, const kernel::Target& target,
                            const std::vector<Nest>& nests, Estimator& estimator,
                            const SizesOptions& options, std::size_t& points);

} // namespace egret::loops
