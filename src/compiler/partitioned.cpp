#include "compiler/partitioned.h"

#include "compiler/streams.h"
#include "kernel/families.h"
#include "kernel/picks.h"
#include "support/fail.h"

#include <algorithm>

namespace egret::compiler {

using ir::NodeId;

namespace {

/// Products of less than this many of a CPU's second-level caches are stored: they cost little
/// memory, and reading them again costs less than making them again.
constexpr double kCachedTimes = 8;

/// The group of a region.
const Group& group_of(const Partition& partition, const BuiltRegion& built) {
  const auto found =
      std::find_if(partition.groups.begin(), partition.groups.end(), [&](const Group& group) {
        return std::any_of(group.members.begin(), group.members.end(), [&](const Member& m) {
          return std::find(built.outputs.begin(), built.outputs.end(), m.node) !=
                 built.outputs.end();
        });
      });
  ensure(found != partition.groups.end(), "partition: a region of no group");
  return *found;
}

/// Whether a kernel may make its products. A deep one is made once, by one kernel in one pass.
bool may_make(const GraphFacts& facts, const StreamRules& rules, const Partition& partition,
              const Group& group, const kernel::Region& region) {
  bool deep = false;
  for (const Member& m : group.members) {
    if (!m.remade || !is_deep(facts, rules, m.node))
      continue;
    deep = true;
    const auto makers =
        std::count_if(partition.groups.begin(), partition.groups.end(), [&](const Group& other) {
          return std::any_of(other.members.begin(), other.members.end(),
                             [&](const Member& of) { return of.remade && of.node == m.node; });
        });
    if (makers > 1)
      return false;
  }
  return !deep || kernel::is_one_pass(region);
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
  std::vector<const kernel::Generator*> generators{&kernel::stream_generator()};
  if (gpu)
    generators = {&kernel::gpu_stream_generator(), &kernel::gpu_row_products_generator()};
  StreamRules rules;
  rules.in_16_bits = gpu;
  if (!gpu)
    rules.least_elements = kCachedTimes * double(target.l2_bytes) / 4;
  // What the generator does not take is stored after all.
  for (;;) {
    Partitioned p = with(&rules);
    const std::size_t stored = rules.not_these.size();
    for (const BuiltRegion& built : p.regions) {
      if (built.kind != GroupKind::Stream)
        continue;
      const Group& group = group_of(p.partition, built);
      if (!may_make(facts, rules, p.partition, group, built.region) ||
          std::all_of(generators.begin(), generators.end(), [&](const kernel::Generator* g) {
            return g->space(built.region, target).empty();
          }))
        for (const Member& m : group.members)
          if (m.remade)
            rules.not_these.insert(m.node);
    }
    if (rules.not_these.size() == stored)
      return p;
  }
}

} // namespace egret::compiler
