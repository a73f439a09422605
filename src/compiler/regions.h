// From groups of the partition to regions.
#pragma once

#include "compiler/partition.h"
#include "kernel/region.h"

namespace egret::compiler {

/// A region with the graph values that its operands and outputs are.
struct BuiltRegion {
  kernel::Region region;
  std::vector<ir::NodeId> operands; ///< by operand: a stored node or a graph input
  std::vector<ir::NodeId> outputs;  ///< by output: a stored node
};

/// `keep` tells which stored nodes must be in memory after the kernel (graph outputs and what other
/// groups read).
BuiltRegion build_region(const GraphFacts& facts, const Partition& partition, const Group& group,
                         const std::vector<bool>& keep);

/// The canonical form that generators rely on: flat operands and outputs, neighbouring axes that
/// always go together merged.
void canonicalize(kernel::Region& region);

} // namespace egret::compiler
