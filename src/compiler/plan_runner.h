// Runs a plan on host arrays, step by step: for bisection and tests.
#pragma once

#include "backend/common/device.h"
#include "backend/reference/host_array.h"
#include "compiler/compiled.h"

#include <span>
#include <vector>

namespace egret::compiler {

/// The memory of a run, as it is between two steps.
class PlanMemory {
public:
  virtual ~PlanMemory() = default;
  /// What a slot holds, as an array of the slot's shape.
  virtual backend::reference::HostArray read(int slot) const = 0;
  /// Fills a slot with an array of as many bytes.
  virtual void write(int slot, const backend::reference::HostArray& array) = 0;
};

/// Is told of a run's steps.
class StepWatcher {
public:
  virtual ~StepWatcher() = default;
  /// True: the step has been done by writing what it stores, and is not run; nothing else is
  /// called.
  virtual bool skip(std::size_t /*step*/, PlanMemory& /*memory*/) { return false; }
  virtual void before(std::size_t step, const PlanMemory& memory) = 0;
  /// False: the run ends here.
  virtual bool after(std::size_t step, const PlanMemory& memory) = 0;
};

/// The graph's outputs. `inputs` by slot; by-value inputs are arrays of rank 0. State inputs are
/// replaced in `inputs`. Launches go through the interpreter, or to a device when one is given.
std::vector<backend::reference::HostArray> run_plan(const Compiled& compiled,
                                                    const ir::Graph& graph,
                                                    std::span<backend::reference::HostArray> inputs,
                                                    backend::Device* device = nullptr,
                                                    StepWatcher* watcher = nullptr);

} // namespace egret::compiler
