// Which values of a partition cost less when the kernels that read them compute them anew: once it
// is known which kernels there are, what a value costs to write and to read back is compared with
// the arithmetic and the operands that its readers would need instead (the recompute-or-store
// decision of Halide's compute_inline, by a roofline estimate).
#pragma once

#include "compiler/partition.h"
#include "kernel/target.h"

#include <functional>

namespace egret::compiler {

/// Partitions the same graph with other choices.
using Repartition = std::function<Partition(const PartitionChoices&)>;

/// The partition by `choices`, or one with more recomputed values that is estimated to take less
/// time on the target. Values that `choices` store stay stored.
Partition with_recomputed_values(const GraphFacts& facts, const kernel::Target& target,
                                 const PartitionChoices& choices, const Repartition& repartition);

} // namespace egret::compiler
