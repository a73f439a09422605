// The partition of a graph as a target can have it.
#pragma once

#include "compiler/regions.h"
#include "kernel/target.h"

#include <vector>

namespace egret::compiler {

struct Partitioned {
  Partition partition;
  std::vector<BuiltRegion> regions;
};

/// The greedy partition, but for `choices`. Large products are recomputed by the kernels that need
/// them (streaming.h) where a streaming template of the target supports all of these kernels. On a
/// GPU, elementwise values are computed by their readers where that is estimated to take less time
/// (recompute_in_readers.h).
Partition partition_for_target(const GraphFacts& facts, bool fuse, const kernel::Target& target,
                               const PartitionChoices& choices = {});

} // namespace egret::compiler
