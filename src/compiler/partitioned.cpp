#include "compiler/partitioned.h"

#include "compiler/canonical.h"
#include "compiler/inlining.h"
#include "compiler/recompute_in_readers.h"
#include "compiler/regions.h"
#include "compiler/search/machine.h"
#include "compiler/streaming.h"
#include "kernel/families.h"
#include "kernel/label_terms.h"
#include "kernel/slices.h"
#include "kernel/stream_form.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace egret::compiler {

using ir::NodeId;

namespace {

/// Products of less than this many of a CPU's second-level caches are stored: they cost little
/// memory, and reading them again costs less than making them again.
constexpr double kCachedTimes = 8;

/// A GPU writes the scores of attention and reads them again several times, and its factors once.
constexpr double kLeastShareOnGpu = 0.5;

/// By dim of the value that a factor of a sum of products sees: whether the sum is over it.
std::vector<bool> summed_dims(const GraphFacts& facts, NodeId sum, NodeId factor) {
  const std::vector<std::int64_t>& over = facts.graph()[sum].attrs.axes;
  std::vector<bool> summed;
  for (const Expr& coord : facts.view(factor).map.coords) {
    const int dim = plain_axis(coord);
    summed.push_back(dim >= 0 && std::count(over.begin(), over.end(), dim) > 0);
  }
  return summed;
}

/// Whether both sums of products take one factor in one way, as the steps of a recurrent net take
/// its weights. One kernel of two such steps would make the first anew for each tile of the second;
/// apart they are repetitions that a chain takes.
bool are_steps(const GraphFacts& facts, NodeId earlier, NodeId later) {
  const ir::Graph& graph = facts.graph();
  for (const NodeId a : graph[facts.product_of(earlier)].inputs)
    for (const NodeId b : graph[facts.product_of(later)].inputs)
      if (facts.view(a).base == facts.view(b).base &&
          summed_dims(facts, earlier, a) == summed_dims(facts, later, b))
        return true;
  return false;
}

/// Whether a kernel may make its products. A deep one is made once, by one kernel in one pass, and
/// so is one that is smaller than its factors.
bool may_make(const GraphFacts& facts, const StreamingRules& rules, const Partition& partition,
              const Group& group, const kernel::Region& region, const kernel::Target& target) {
  bool deep = false, small = false;
  for (const Member& m : group.members) {
    if (!m.remade || facts.product_of(m.node) == ir::kNoNode)
      continue;
    if (std::any_of(group.members.begin(), group.members.end(), [&](const Member& of) {
          return !of.remade && facts.product_of(of.node) != ir::kNoNode &&
                 are_steps(facts, m.node, of.node);
        }))
      return false;
    const bool is_small = share_of_factors(facts, m.node) < rules.least_share;
    if (!is_small && !is_deep(facts, rules, m.node))
      continue;
    (is_small ? small : deep) = true;
    const auto makers =
        std::count_if(partition.groups.begin(), partition.groups.end(), [&](const Group& other) {
          return std::any_of(other.members.begin(), other.members.end(),
                             [&](const Member& of) { return of.remade && of.node == m.node; });
        });
    if (makers > 1)
      return false;
  }
  return (!deep || kernel::is_one_pass(region)) &&
         (!small || kernel::is_whole_stream(region, target));
}

/// Bytes that readers of slices in kernels of their own would read, and the product's kernel write.
double bytes_between(const kernel::Region& region) {
  double bytes = 0;
  for (const kernel::Stage& stage : region.stages)
    for (const kernel::Load& load : stage.loads) {
      if (load.source != kernel::Source::Stage ||
          region.stages[std::size_t(load.number)].kind != kernel::StageKind::Reduce)
        continue;
      Shape box;
      for (const int a : stage.axes)
        box.push_back(region.axes[std::size_t(a)].extent);
      bytes += 2 * elements_of(box) * double(size_of(stage.body[0].dtype));
    }
  return bytes;
}

/// Seconds that are saved where readers of a product's slices share its kernel.
double seconds_saved(const kernel::Region& region, const Machine& machine) {
  return machine.launch_seconds + bytes_between(region) / machine.bytes_per_second;
}

/// kernel::slices_pay() of regions, by their hashes: the steps of a loop have equal ones.
using SlicesPay = std::map<std::uint64_t, bool>;

/// The greedy partition with those streaming contractions, and products with readers of their
/// slices, that the target has a kernel for.
Partition partition_with_streams(const GraphFacts& facts, bool fuse, const kernel::Target& target,
                                 const PartitionChoices& choices, SlicesPay& slices_pay) {
  if (!fuse)
    return partition_greedily(facts, fuse, nullptr, choices);
  const bool gpu = target.is_gpu();
  std::vector<const kernel::Generator*> generators{&kernel::stream_generator()};
  if (gpu)
    generators = {&kernel::gpu_stream_generator(), &kernel::gpu_row_products_generator()};
  StreamingRules rules;
  rules.in_memory = gpu;
  if (gpu) {
    rules.least_share = kLeastShareOnGpu;
    rules.least_share_of_one = 0;
  } else {
    rules.least_elements = kCachedTimes * double(target.l2_bytes) / 4;
  }
  PartitionChoices own = choices;
  const Machine machine = usual_machine(target);
  // What the generator does not take is stored after all.
  for (;;) {
    Partition partition = partition_greedily(facts, fuse, choices.streams ? &rules : nullptr, own);
    const std::vector<bool> keep = kept_values(facts, partition);
    const std::size_t stored = rules.not_these.size() + own.unsliced.size();
    for (const Group& group : partition.groups) {
      if (group.kind != GroupKind::Stream && group.sliced < 0)
        continue;
      BuiltRegion built = build_region(facts, partition, group, keep, target);
      canonicalize(built.region, target);
      if (group.sliced >= 0) {
        const auto [known, fresh] = slices_pay.emplace(kernel::hash_of(built.region), false);
        if (fresh)
          known->second =
              kernel::slices_pay(built.region, target, seconds_saved(built.region, machine));
        if (!known->second)
          for (const Member& m : group.members)
            own.unsliced.insert(m.node);
        continue;
      }
      if (!may_make(facts, rules, partition, group, built.region, target) ||
          (own.stored_scores && kernel::stored_scores_take_less(built.region, target)) ||
          std::all_of(generators.begin(), generators.end(), [&](const kernel::Generator* g) {
            return g->space(built.region, target).empty();
          }))
        for (const Member& m : group.members)
          if (m.remade)
            rules.not_these.insert(m.node);
    }
    if (rules.not_these.size() + own.unsliced.size() == stored)
      return partition;
  }
}

/// Positions that gathers and scatters would compute for every element of their rows, by divisions,
/// as interpolations do: a CPU reads them from its cache in less time. A scatter that sees how its
/// index is selected knows more of it.
std::set<NodeId> repeated_positions(const GraphFacts& facts) {
  constexpr double kLeastFlops = 8, kLeastTimes = 16;
  const ir::Graph& graph = facts.graph();
  std::set<NodeId> found;
  for (const Recomputed& made : recomputed_values(facts, std::vector<bool>(graph.size()))) {
    if (made.flops <= kLeastFlops || graph[made.node].op == Op::Select)
      continue;
    for (const Use& use : facts.uses(made.node)) {
      const OpClass cls = info_of(graph[use.reader].op).cls;
      if ((cls == OpClass::Gather || cls == OpClass::Scatter) && use.operand == 1 &&
          elements_of(frame_of(graph, use.reader)) >=
              kLeastTimes * elements_of(graph[made.node].shape))
        found.insert(made.node);
    }
  }
  return found;
}

} // namespace

Partition partition_for_target(const GraphFacts& facts, bool fuse, const kernel::Target& target,
                               const PartitionChoices& choices) {
  SlicesPay slices_pay;
  if (!fuse)
    return partition_with_streams(facts, fuse, target, choices, slices_pay);
  if (!target.is_gpu()) {
    PartitionChoices own = choices;
    own.stored.merge(repeated_positions(facts));
    own.windows_stored = true;
    return partition_with_streams(facts, fuse, target, own, slices_pay);
  }
  PartitionChoices first = choices;
  first.columns = true;
  first.concatenated_in_place = true;
  first.factors_stored = target.unit(kernel::FragmentLayout::SwizzledSharedRows) != nullptr;
  return with_recomputed_values(facts, target, first, [&](const PartitionChoices& changed) {
    return partition_with_streams(facts, fuse, target, changed, slices_pay);
  });
}

} // namespace egret::compiler
