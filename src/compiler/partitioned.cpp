#include "compiler/partitioned.h"

#include "compiler/canonical.h"
#include "compiler/recompute_in_readers.h"
#include "compiler/streaming.h"
#include "kernel/families.h"
#include "kernel/picks.h"

#include <algorithm>

namespace egret::compiler {

using ir::NodeId;

namespace {

/// Products of less than this many of a CPU's second-level caches are stored: they cost little
/// memory, and reading them again costs less than making them again.
constexpr double kCachedTimes = 8;

/// Whether a kernel may make its products. A deep one is made once, by one kernel in one pass.
bool may_make(const GraphFacts& facts, const StreamingRules& rules, const Partition& partition,
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

/// The greedy partition with those streaming contractions that the target has a kernel for.
Partition partition_with_streams(const GraphFacts& facts, bool fuse, const kernel::Target& target,
                                 const PartitionChoices& choices) {
  if (!fuse || !choices.streams)
    return partition_greedily(facts, fuse, nullptr, choices);
  const bool gpu = target.is_gpu();
  std::vector<const kernel::Generator*> generators{&kernel::stream_generator()};
  if (gpu)
    generators = {&kernel::gpu_stream_generator(), &kernel::gpu_row_products_generator()};
  StreamingRules rules;
  rules.in_16_bits = gpu;
  if (!gpu)
    rules.least_elements = kCachedTimes * double(target.l2_bytes) / 4;
  // What the generator does not take is stored after all.
  for (;;) {
    Partition partition = partition_greedily(facts, fuse, &rules, choices);
    const std::vector<bool> keep = kept_values(facts, partition);
    const std::size_t stored = rules.not_these.size();
    for (const Group& group : partition.groups) {
      if (group.kind != GroupKind::Stream)
        continue;
      BuiltRegion built = build_region(facts, partition, group, keep, target);
      canonicalize(built.region);
      if (!may_make(facts, rules, partition, group, built.region) ||
          std::all_of(generators.begin(), generators.end(), [&](const kernel::Generator* g) {
            return g->space(built.region, target).empty();
          }))
        for (const Member& m : group.members)
          if (m.remade)
            rules.not_these.insert(m.node);
    }
    if (rules.not_these.size() == stored)
      return partition;
  }
}

} // namespace

Partition partition_for_target(const GraphFacts& facts, bool fuse, const kernel::Target& target,
                               const PartitionChoices& choices) {
  if (!fuse || !target.is_gpu())
    return partition_with_streams(facts, fuse, target, choices);
  PartitionChoices first = choices;
  first.columns = true;
  return with_recomputed_values(facts, target, first, [&](const PartitionChoices& changed) {
    return partition_with_streams(facts, fuse, target, changed);
  });
}

} // namespace egret::compiler
