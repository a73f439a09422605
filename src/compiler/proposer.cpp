#include "compiler/proposer.h"

#include "compiler/search/candidates.h"
#include "compiler/search/cost_model.h"

#include "egret/error.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <set>
#include <utility>

namespace egret::compiler {

using ir::NodeId;

namespace {

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

/// Whether bits of its results depend on the order in which it adds or multiplies.
bool depends_on_order(const kernel::Region& region) {
  const bool sums =
      std::any_of(region.stages.begin(), region.stages.end(), [](const kernel::Stage& stage) {
        return stage.kind != kernel::StageKind::Map && is_float(stage.acc_dtype) &&
               (stage.monoid == Monoid::Sum || stage.monoid == Monoid::Prod);
      });
  return sums ||
         std::any_of(region.outputs.begin(), region.outputs.end(),
                     [](const kernel::Output& output) {
                       return output.combine == kernel::Combine::Add && is_float(output.dtype);
                     });
}

} // namespace

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

Proposer::Proposer(const Options& options, const kernel::Target& target)
    : options_(options), target_(target) {}

Proposer::Key Proposer::key_of(const WantedKernel& wanted) {
  return {kernel::hash_of(*wanted.region), wanted.cold};
}

std::vector<kernel::Chosen> Proposer::choose(const std::vector<WantedKernel>& wanted,
                                             double seconds, SearchReport& report,
                                             Refusals& refusals) {
  std::vector<kernel::Chosen> chosen;
  const Effort effort = options_.effort.value_or(Effort::None);
  if (effort == Effort::None || !options_.tuner) {
    for (const WantedKernel& kernel : wanted)
      chosen.push_back(refusals.lower_greedily(*kernel.region));
    return chosen;
  }
  std::vector<WantedKernel> fresh;
  for (const WantedKernel& w : wanted) {
    if (known_.contains(key_of(w)))
      continue;
    if (!options_.deterministic || !depends_on_order(*w.region)) {
      fresh.push_back(w);
      continue;
    }
    RegionSearch untouched;
    kernel::Chosen greedy = kernel::lower_greedily(*w.region, target_);
    untouched.name = w.region->name;
    untouched.region = kernel::hash_of(*w.region);
    untouched.note = "its sums keep their order";
    untouched.chosen = to_string(greedy.schedule);
    known_.emplace(key_of(w), Known{std::move(greedy), std::move(untouched)});
  }
  std::vector<kernel::Chosen> found = options_.tuner->choose(
      fresh,
      {effort, seconds, options_.frozen, options_.progress, options_.libraries.value_or(true)},
      report);
  std::set<Key> open; // those that the search did not come to: they may be asked for again
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    if (!report.note.empty() && report.regions[i].note == report.note)
      open.insert(key_of(fresh[i]));
    known_.emplace(key_of(fresh[i]), Known{std::move(found[i]), std::move(report.regions[i])});
  }
  report.regions.clear();
  for (const WantedKernel& w : wanted) {
    const Known& known = known_.at(key_of(w));
    chosen.push_back(known.chosen);
    report.regions.push_back(known.search);
  }
  for (const Key& key : open)
    known_.erase(key);
  refusals.note(report);
  return chosen;
}

Proposed Proposer::propose(const ir::Graph& graph, const std::vector<BuiltRegion>& regions,
                           double seconds) {
  Proposed proposed;
  DistinctRegions distinct = distinct_regions(graph, regions, target_);
  Refusals& refusals = proposed.refusals;
  refusals = Refusals(target_, options_.strict ? *options_.strict : strict_by_environment());
  std::vector<kernel::Chosen> chosen = choose(distinct.wanted, seconds, proposed.search, refusals);
  if (!options_.schedules.empty()) {
    std::vector<const kernel::Region*> wanted;
    for (const WantedKernel& kernel : distinct.wanted)
      wanted.push_back(kernel.region);
    for (auto& [i, kernel] : lower_requested(options_.schedules, wanted, target_))
      chosen[i] = std::move(kernel);
  }
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    kernel::Chosen& c = chosen[i];
    kernel::Region region = *distinct.wanted[i].region;
    if (options_.inject_fault)
      options_.inject_fault(region, c);
    c.program.name = region.name;
    try {
      kernel::verify(c.program);
    } catch (const InternalError&) {
      c = refusals.replace(region, c.schedule, kernel::hash_of(c.program),
                           std::current_exception());
    }
    const std::uint64_t hash = kernel::hash_of(c.program);
    proposed.entries.push_back(
        {std::move(region), std::move(c.schedule), std::move(c.program), hash});
  }
  proposed.entry_of = std::move(distinct.of_region);
  return proposed;
}

double Proposer::predicted(const WantedKernel& wanted, const Machine& machine) {
  const Key key = key_of(wanted);
  if (const auto it = known_.find(key); it != known_.end())
    return it->second.search.predicted;
  const auto [it, fresh] = predicted_.emplace(key, 0);
  if (fresh) {
    std::vector<kernel::FailedLowering> failed; // listed if the fusion plan is taken
    it->second =
        predict(kernel::lower_greedily(*wanted.region, target_, &failed).program, *wanted.region,
                target_, machine, sizes_to_try(*wanted.region), wanted.cold);
  }
  return it->second;
}

} // namespace egret::compiler
