// Values of the steps of an unrolled loop: which of them have one form, and all of them as one
// value with an axis of the steps in front.
#pragma once

#include "egret/ir.h"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace egret::compiler {

/// Values with one form, of which one is of step t and another of step t + i, are what a loop's
/// body makes of index t and of index t + i of the same values.
struct Step {
  std::uint64_t form = 0; ///< 0: a value of no step
  std::int64_t number = 0;
  explicit operator bool() const { return form != 0; }
};

/// The steps of a graph's values: a slice of one index of an axis, and elementwise values,
/// movements and reductions of such slices and of values that are the same in all steps.
class Steps {
public:
  explicit Steps(const ir::Graph& graph) : graph_(graph) {}
  /// Of a node, the graph being as long as it is now.
  Step of(ir::NodeId id);
  const ir::Graph& graph() const { return graph_; }

private:
  Step step_of(ir::NodeId id) const;
  Step slice(ir::NodeId id) const;
  const ir::Graph& graph_;
  std::vector<Step> steps_;
};

/// Adds to a graph values of many steps.
class StepLifter {
public:
  StepLifter(ir::Graph& out, Steps& steps) : out_(out), steps_(steps) {}
  /// The value `id`, which has a step, and those of the `count` - 1 steps behind it, or before it
  /// where `direction` is -1, along a new axis in front.
  ir::NodeId lifted(ir::NodeId id, std::int64_t count, std::int64_t direction);
  /// `count` times a value that is the same in all steps.
  ir::NodeId repeated(ir::NodeId id, std::int64_t count);

private:
  ir::NodeId slices(ir::NodeId id, std::int64_t count, std::int64_t direction);
  ir::Graph& out_;
  Steps& steps_;
  std::map<std::pair<ir::NodeId, std::int64_t>, ir::NodeId> known_; ///< by node, count · direction
};

} // namespace egret::compiler
