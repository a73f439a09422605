// What the compiler gives: a plan with the machine code of its kernels, and a report.
#pragma once

#include "backend/common/device.h"
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
  std::vector<std::shared_ptr<const backend::Artifact>> artifacts; ///< by Plan::kernels
  CompileReport report;
};

} // namespace egret::compiler
