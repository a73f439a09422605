// The kernels of a graph as a target can have them.
#pragma once

#include "compiler/regions.h"

#include <vector>

namespace egret::compiler {

struct Partitioned {
  Partition partition;
  std::vector<BuiltRegion> regions;
};

/// The greedy partition, but for `choices`, and its regions. Large products are remade by the
/// kernels that need them where the target's generator of streams takes all of these kernels.
Partitioned partition_for(const GraphFacts& facts, bool fuse, const kernel::Target& target,
                          const PartitionChoices& choices = {});

} // namespace egret::compiler
