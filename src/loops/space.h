// Loops of one region from a small e-graph: skeletons by rules, orders and sizes by roles, and a
// proof of each tree that is proposed (docs/loops.md).
#pragma once

#include "loops/options.h"

#include <span>
#include <string>
#include <vector>

namespace egret::loops {

/// Trees for the region, best first by estimate; none where the region has too many stages or axes,
/// or no points, and the report says so. Each was brought to the plain tree by the rules, and
/// kernel::loops::why_not has nothing against it.
LoopSpace loop_space(const kernel::Region& region, const kernel::Target& target,
                     const LoopOptions& options = {});

/// A tree for a region that nobody times: found with a small and fixed amount of work, so that the
/// same region always gets the same one.
struct QuickTree {
  TreePtr tree;             ///< null: none
  double seconds = 0;       ///< predicted
  double plain_seconds = 0; ///< predicted of the plain tree, each result by a core or a thread
  LoopReport report;
};
QuickTree quick_tree(const kernel::Region& region, const kernel::Target& target);

/// Which of the trees the rules bring to the plain tree.
std::vector<bool> prove(const kernel::Region& region, const kernel::Target& target,
                        const std::vector<TreePtr>& trees, const LoopOptions& options,
                        LoopReport& report);

/// The whole as a program that `egret egraph run` replays: terms and rules, then for each region
/// its facts, the plain tree and the trees that were found for it, with checks that they are one.
std::string program_text(std::span<const kernel::Region* const> regions,
                         const kernel::Target& target, const LoopOptions& options = {});

} // namespace egret::loops
