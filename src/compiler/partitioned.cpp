#include "compiler/partitioned.h"

#include "compiler/streams.h"
#include "kernel/families.h"

#include <algorithm>

namespace egret::compiler {

using ir::NodeId;

namespace {

/// Products of less than this many of a CPU's second-level caches are stored: they cost little
/// memory, and reading them again costs less than making them again.
constexpr double kCachedTimes = 8;

/// Adds the products that a region remakes to those that are stored.
void store_products(const Partition& partition, const BuiltRegion& built, StreamRules& rules) {
  for (const Group& group : partition.groups) {
    const bool is_it =
        std::any_of(group.members.begin(), group.members.end(), [&](const Member& m) {
          return std::find(built.outputs.begin(), built.outputs.end(), m.node) !=
                 built.outputs.end();
        });
    for (const Member& m : group.members)
      if (is_it && m.remade)
        rules.not_these.insert(m.node);
  }
}

} // namespace

Partitioned partition_for(const GraphFacts& facts, bool fuse, const kernel::Target& target,
                          const PartitionChoices& choices) {
  const auto with = [&](const StreamRules* streams) {
    Partitioned p{partition_greedily(facts, fuse, streams, choices), {}};
    p.regions = build_regions(facts, p.partition, target, choices.carries);
    return p;
  };
  if (!fuse || !choices.streams)
    return with(nullptr);
  const bool gpu = target.device == "cuda";
  const kernel::Generator& generator =
      gpu ? kernel::gpu_stream_generator() : kernel::stream_generator();
  StreamRules rules;
  rules.in_16_bits = gpu;
  if (!gpu)
    rules.least_elements = kCachedTimes * double(target.l2_bytes) / 4;
  // What the generator does not take is stored after all.
  for (;;) {
    Partitioned p = with(&rules);
    const std::size_t stored = rules.not_these.size();
    for (const BuiltRegion& built : p.regions)
      if (built.kind == GroupKind::Stream && generator.space(built.region, target).empty())
        store_products(p.partition, built, rules);
    if (rules.not_these.size() == stored)
      return p;
  }
}

} // namespace egret::compiler
