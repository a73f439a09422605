#include "compiler/partitioned.h"

#include "kernel/families.h"

namespace egret::compiler {

Partitioned partition_for(const GraphFacts& facts, bool fuse, const kernel::Target& target,
                          const PartitionChoices& choices) {
  const auto with = [&](bool streams) {
    Partitioned p{partition_greedily(facts, fuse, streams, choices), {}};
    p.regions = build_regions(facts, p.partition, target, choices.carries);
    return p;
  };
  if (!fuse || !choices.streams || target.capability == 0)
    return with(false);
  Partitioned p = with(true);
  for (const BuiltRegion& built : p.regions)
    if (built.kind == GroupKind::Stream &&
        kernel::gpu_stream_generator().space(built.region, target).empty())
      return with(false);
  return p;
}

} // namespace egret::compiler
