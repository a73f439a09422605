// What a search for loops may do, and what it did.
#pragma once

#include "kernel/loops/tree.h"
#include "kernel/target.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace egret::loops {

using kernel::loops::TreePtr;

struct LoopOptions {
  double seconds = 0.8;             ///< for a region; what was found by then is what there is
  std::uint64_t rows = 20000;       ///< of an e-graph, for each phase
  std::size_t trees = 8;            ///< proposed at the most; 0: all that are proved
  std::size_t skeletons = 4;        ///< besides the plain one
  std::size_t points = 9000;        ///< trees that are estimated for each skeleton
  std::size_t draws = 24;           ///< trees that are drawn at random
  bool reassociate = true;          ///< sums may be made in another order, by lanes and in parts
  std::vector<std::string> without; ///< rules that are left out
  std::string rules;                ///< more of them, in the language of docs/egraph.md: for tests
};

/// A way through the region's points that was shown to be the plain one.
struct LoopTree {
  TreePtr tree;
  double seconds = 0;   ///< predicted (estimate.h)
  std::string skeleton; ///< its loops before sizes were chosen, as text
};

struct LoopRule {
  std::string name, ruleset;
  std::uint64_t fired = 0; ///< matches
};

struct LoopReport {
  std::vector<LoopRule> rules; ///< that fired, most often first; those that only gather facts of
                               ///< trees are left out
  std::uint64_t nodes = 0;     ///< e-nodes of loop terms, of all phases
  double seconds = 0;
  std::vector<std::string> stopped; ///< phases that did not come to an end, with the rule that grew
                                    ///< most: "structure: rows, exchange"
  std::size_t skeletons = 0;        ///< that sizes were chosen for
  std::size_t points = 0;           ///< trees that were estimated
  std::size_t illegal = 0;  ///< of the best of them, those that kernel::loops::why_not refused
  std::size_t unproved = 0; ///< and those that did not come to the plain tree
  std::vector<std::string> refused; ///< the first few of both, with the reason
  std::string note;                 ///< why there is no tree at all, if so
};

struct LoopSpace {
  std::vector<LoopTree> trees; ///< best first
  LoopReport report;
};

} // namespace egret::loops
