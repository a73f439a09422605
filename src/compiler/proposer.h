// A schedule and a kernel program for each region.
#pragma once

#include "compiler/options.h"
#include "compiler/refusals.h"
#include "compiler/regions.h"
#include "compiler/search/tuner.h"
#include "kernel/plan.h"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace egret::compiler {

/// The distinct regions of a fusion plan, in the order in which they first appear.
struct DistinctRegions {
  std::vector<WantedKernel> wanted; ///< point into the regions
  std::vector<int> of_region;       ///< by region: its place in `wanted`
};
DistinctRegions distinct_regions(const ir::Graph& graph, const std::vector<BuiltRegion>& regions,
                                 const kernel::Target& target);

/// A schedule and a program for each distinct region.
struct Proposed {
  std::vector<kernel::KernelEntry> entries;
  std::vector<int> entry_of; ///< by region
  SearchReport search;
  Refusals refusals; ///< kernels that others took the place of
};

/// Chooses schedules, greedily or by Options::tuner. Each region is asked for once, however many
/// fusion plans it appears in. A program that does not pass verification is replaced (refusals.h).
class Proposer {
public:
  Proposer(const Options& options, const kernel::Target& target);
  /// `seconds`: of a search.
  Proposed propose(const ir::Graph& graph, const std::vector<BuiltRegion>& regions, double seconds);
  /// Seconds of a launch, by the cost model, of the greedy schedule, or of the one that was chosen
  /// already.
  double predicted(const WantedKernel& wanted, const Machine& machine);

  using Key = std::pair<std::uint64_t, bool>; ///< a region's hash, and whether it is cold
  static Key key_of(const WantedKernel& wanted);

private:
  struct Known {
    kernel::Chosen chosen;
    RegionSearch search;
  };
  std::vector<kernel::Chosen> choose(const std::vector<WantedKernel>& wanted, double seconds,
                                     SearchReport& report, Refusals& refusals);

  const Options& options_;
  const kernel::Target& target_;
  std::map<Key, Known> known_;
  std::map<Key, double> predicted_;
};

} // namespace egret::compiler
