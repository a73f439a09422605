// From kernels to launches: what waits for what, which states are updated in place, and which
// values may take over each other's memory.
#pragma once

#include "compiler/launch_graph.h"
#include "compiler/plan_builder.h"

#include <map>
#include <set>

namespace egret::compiler {

/// The launches of a plan. Those of `kernels` come first, in their order; behind them stand copies
/// of new values of states that could not be written where the old ones are.
struct Launches {
  struct Copy {
    ir::NodeId from;
    int output; ///< of the graph
  };
  LaunchGraph graph;
  std::vector<Copy> copies;
  std::map<ir::NodeId, int> value_of;  ///< stored nodes, as values of `graph`
  std::map<ir::NodeId, int> output_of; ///< stored nodes, as outputs of the ir::Graph
  std::set<int> in_place; ///< outputs that are written over an input, always or in some runs
};

/// `seconds`: of a launch, by entry.
Launches link(const ir::Graph& graph, const std::vector<PlannedKernel>& kernels,
              const std::vector<kernel::KernelEntry>& entries,
              const std::vector<OutputSpec>& outputs, const std::vector<double>& seconds);

/// Bytes of a value; Error(Unsupported) when it has no largest size.
Expr bytes_of(const ir::Node& node);

/// A workspace as a value.
ir::Node workspace_node(const kernel::Buffer& buffer);

} // namespace egret::compiler
