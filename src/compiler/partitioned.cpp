#include "compiler/partitioned.h"

#include "kernel/families.h"

namespace egret::compiler {

Partitioned partition_for(const GraphFacts& facts, bool fuse, const kernel::Target& target) {
  const auto with = [&](bool streams) {
    Partitioned p{partition_greedily(facts, fuse, streams), {}};
    p.regions = build_regions(facts, p.partition, target);
    return p;
  };
  if (!fuse || target.capability == 0)
    return with(false);
  Partitioned p = with(true);
  for (const BuiltRegion& built : p.regions)
    if (built.kind == GroupKind::Stream &&
        kernel::gpu_stream_generator().space(built.region, target).empty())
      return with(false);
  return p;
}

} // namespace egret::compiler
