// From groups of the partition to regions.
#pragma once

#include "compiler/partition.h"
#include "kernel/region.h"
#include "kernel/target.h"

#include <cstdint>

namespace egret::compiler {

/// A region with the graph values that its operands and outputs are.
struct BuiltRegion {
  GroupKind kind = GroupKind::Map; ///< of the group that it was built from
  kernel::Region region;
  std::vector<ir::NodeId> operands;  ///< by operand: a stored node or a graph input
  std::vector<ir::NodeId> outputs;   ///< by output: a stored node
  std::vector<std::int64_t> offsets; ///< by operand: bytes from where the value begins to where the
                                     ///< operand does (rebase_operands.h); empty: none
};

/// BuiltRegion::offsets of one operand.
inline std::int64_t offset_of(const BuiltRegion& built, std::size_t operand) {
  return built.offsets.empty() ? 0 : built.offsets[operand];
}

/// The region of a group, with operands aligned as the target's memory is. `keep`: see
/// kept_values().
BuiltRegion build_region(const GraphFacts& facts, const Partition& partition, const Group& group,
                         const std::vector<bool>& keep, const kernel::Target& target);

/// Which nodes must be in memory after their kernels: graph outputs and what other groups read.
std::vector<bool> kept_values(const GraphFacts& facts, const Partition& partition);

/// The regions of all groups. Their canonical form (canonical.h) is what templates take.
std::vector<BuiltRegion> build_regions(const GraphFacts& facts, const Partition& partition,
                                       const kernel::Target& target);

} // namespace egret::compiler
