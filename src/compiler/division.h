// A graph cut into kernels: what comes between the graph that rules chose and the choice of
// schedules.
#pragma once

#include "compiler/partitioned.h"
#include "compiler/search/tuner.h"

namespace egret::compiler {

/// A graph as the partition takes it, with what there is to know of it. Stays where it is made.
class Form {
public:
  /// `graph` with its normal form; InternalError when that loses an input or an output.
  explicit Form(const ir::Graph& graph);
  /// A graph that is in normal form, as `like` with copies in other layouts is.
  Form(ir::Graph graph, const Form& like);
  Form(const Form&) = delete;
  Form& operator=(const Form&) = delete;
  const ir::Graph& graph() const { return graph_; }
  std::size_t ops() const { return ops_; } ///< before the normal form
  const GraphFacts& facts() const { return facts_; }

private:
  std::size_t ops_;
  ir::Graph graph_;
  GraphFacts facts_;
};

/// The distinct regions of a division, in the order in which they first appear.
struct DistinctRegions {
  std::vector<WantedKernel> wanted; ///< point into the regions
  std::vector<int> of_region;       ///< by region: its place in `wanted`
};
DistinctRegions distinct_regions(const ir::Graph& graph, const std::vector<BuiltRegion>& regions,
                                 const kernel::Target& target);

/// Partition, states in place, and batches.
Partitioned divide(const Form& form, const Options& options, const kernel::Target& target,
                   const PartitionChoices& choices = {});

} // namespace egret::compiler
