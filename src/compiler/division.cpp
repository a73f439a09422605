#include "compiler/division.h"

#include "compiler/batching.h"
#include "compiler/chunks.h"
#include "compiler/plan_builder.h"
#include "compiler/prepare.h"
#include "compiler/row_sums.h"
#include "compiler/sink_reshapes.h"
#include "egret/passes.h"
#include "support/fail.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

namespace egret::compiler {

using ir::NodeId;

namespace {

/// Inputs that the caller binds keep their slots, whether used or not; normalization must not lose
/// one.
ir::Graph normalized(const ir::Graph& graph) {
  ir::Graph result = prepare(shortened_row_sums(sink_reshapes(passes::normalize()(graph))));
  ir::verify(result);
  ensure(result.inputs().size() == graph.inputs().size() &&
             result.outputs.size() == graph.outputs.size(),
         "compile: normalization changed the number of inputs or outputs");
  return result;
}

/// By region: WantedKernel::cold.
std::vector<bool> cold_regions(const ir::Graph& graph, const std::vector<BuiltRegion>& regions,
                               const kernel::Target& target) {
  constexpr double kLeast = 256 << 10; // smaller ones may stay in some cache
  const auto bytes = [&](NodeId id) {
    double all = static_cast<double>(size_of(graph[id].dtype));
    for (const Expr& dim : graph[id].shape)
      all *= static_cast<double>(dim.upper());
    return all;
  };
  const auto is_input = [&](NodeId id) { return graph[id].op == Op::Input; };
  std::set<NodeId> inputs;
  for (const BuiltRegion& built : regions)
    std::copy_if(built.operands.begin(), built.operands.end(), std::inserter(inputs, inputs.end()),
                 is_input);
  double all_inputs = 0;
  for (const NodeId id : inputs)
    all_inputs += bytes(id);
  std::vector<bool> cold(regions.size(), false);
  if (all_inputs <= static_cast<double>(std::max(target.l2_bytes, target.l3_bytes)))
    return cold;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    double from_inputs = 0, all = 0;
    for (const NodeId id : regions[i].operands) {
      all += bytes(id);
      from_inputs += is_input(id) ? bytes(id) : 0;
    }
    for (const NodeId id : regions[i].outputs)
      all += bytes(id);
    cold[i] = from_inputs >= kLeast && from_inputs >= all / 2;
  }
  return cold;
}

} // namespace

Form::Form(const ir::Graph& graph)
    : ops_(graph.size()), graph_(normalized(graph)), facts_(graph_) {}

Form::Form(ir::Graph graph, const Form& like)
    : ops_(like.ops_), graph_(std::move(graph)), facts_(graph_) {
  ir::verify(graph_);
}

Partitioned divide(const Form& form, const Options& options, const kernel::Target& target,
                   const PartitionChoices& chosen) {
  PartitionChoices choices = chosen;
  if (!options.chunks.empty()) {
    choices.chunks = chunks_of(form.graph(), options.chunks);
    choices.batches = false; // which would hold several chunks at a time
    // What the chunks so far have come to, instead of what each of them has until the last one.
    for (NodeId id = 0; id < form.graph().size(); ++id)
      if (choices.chunks[id] == kSoFar && info_of(form.graph()[id].op).cls == OpClass::Binary)
        choices.stored.insert(id);
  }
  Partitioned parts = partition_for(form.facts(), options.fuse, target, choices);
  declare_states_in_place(form.graph(), parts.regions, options.outputs);
  if (options.fuse && choices.batches)
    batch_small_kernels(form.graph(), parts.regions, options.outputs, target);
  return parts;
}

DistinctRegions distinct_regions(const ir::Graph& graph, const std::vector<BuiltRegion>& regions,
                                 const kernel::Target& target) {
  DistinctRegions distinct;
  std::map<std::uint64_t, int> known;
  const std::vector<bool> cold = cold_regions(graph, regions, target);
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const kernel::Region& region = regions[i].region;
    const auto [it, fresh] =
        known.emplace(kernel::hash_of(region), static_cast<int>(distinct.wanted.size()));
    if (fresh)
      distinct.wanted.push_back({&region, 0});
    WantedKernel& wanted = distinct.wanted[static_cast<std::size_t>(it->second)];
    wanted.launches += 1;
    wanted.cold |= cold[i];
    distinct.of_region.push_back(it->second);
  }
  return distinct;
}

} // namespace egret::compiler
