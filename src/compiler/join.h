// Producer and consumer in one kernel: loop fusion along the axes at which one reads what the other
// computes.
#pragma once

#include "compiler/inlining.h"
#include "compiler/partition.h"

#include <string>
#include <vector>

namespace egret::compiler {

/// The group of one stored node.
Group group_of_one(const GraphFacts& facts, ir::NodeId node);

struct Joined {
  bool ok = false;
  Group group;
  std::string why; ///< not
};
/// `producer` and `consumer` as one group, where `consumer` reads at each point what `producer`
/// computes at that point, so that their axes can be the same loops: elementwise values join each
/// other, a contraction takes elementwise values as its epilogue, and reductions over the same rows
/// join each other and the elementwise values around them; those over the same columns as well,
/// where `by_columns` says that the target has kernels for that. With `slices` a contraction also
/// takes elementwise values that read it at several fixed places of one short axis, and at their
/// own points of the others. `reads`: by node. Whether a third kernel would have to run in between
/// is for the caller to see.
Joined join(const GraphFacts& facts, const std::vector<std::span<const Read>>& reads,
            const Group& producer, const Group& consumer, bool by_columns, bool slices = false);

} // namespace egret::compiler
