// What the compiler gives: a plan with the machine code of its kernels, and a report.
#pragma once

#include "backend/common/device.h"
#include "compiler/chains.h"
#include "compiler/report.h"
#include "kernel/plan.h"

#include <memory>
#include <vector>

namespace egret::compiler {

/// The values of CompileReport::graph that a launch reads and writes.
struct LaunchValues {
  std::vector<ir::NodeId> operands, outputs; ///< by operand and output of the region
};

struct Compiled {
  kernel::Plan plan;
  /// With Options::steady, where it pays: the plan's inputs are those of the graph, and then what
  /// derivation->fill makes of some of them.
  std::shared_ptr<const ParameterFolding> derivation;
  std::vector<LaunchValues> launches; ///< by launch of the plan, in order
  /// By Plan::kernels; null for those that only chains launch.
  std::vector<std::shared_ptr<const backend::Artifact>> artifacts;
  std::vector<Chain> chains; ///< of launches of the plan, in order
  std::vector<std::shared_ptr<const backend::Artifact>> chain_artifacts; ///< by chain
  CompileReport report;
};

/// What is launched, or copied, for a step of the plan, or for all steps of a chain at once.
struct PlannedWork {
  const kernel::Step* step = nullptr;             ///< slots and numbers of the launch
  const kernel::KernelProgram* program = nullptr; ///< null: a copy
  const backend::Artifact* artifact = nullptr;
  int first = 0, count = 1; ///< steps of the plan
  bool settled = false;     ///< backend::Work::settled, where all is launched as it is listed
};
/// Of the whole plan in order, chains being one launch each; pointers into `compiled`.
std::vector<PlannedWork> work_of(const Compiled& compiled);

} // namespace egret::compiler
