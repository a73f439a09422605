// Chains of launches in a plan: neighbouring steps that one launch may do (kernel/chain.h).
#pragma once

#include "kernel/plan.h"
#include "kernel/target.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace egret::compiler {

/// Neighbouring steps of a plan, launches all, that one launch does instead. Who runs the steps one
/// by one gets the same values.
struct Chain {
  int first = 0, count = 0; ///< of Plan::steps
  kernel::Step launch;      ///< by pointer argument of `program`; without a kernel of the plan
  kernel::KernelProgram program;
  double seconds = 0; ///< predicted
  int end() const { return first + count; }
};

struct FoundChains {
  std::vector<Chain> chains; ///< in the order of their steps
  /// Of runs whose blocks would share memory, the launches, first and last, by number among the
  /// plan's: see PlanWishes::apart.
  std::vector<std::pair<int, int>> mixed;
  double saved_seconds = 0; ///< predicted
};

/// Runs of launches that repeat a sequence of at most four kernels with other memory, and whose one
/// launch is predicted to take less time than they do. `strict`: an InternalError of lowering is
/// the caller's; else the launches stay.
FoundChains chain_launches(const kernel::Plan& plan, const kernel::Target& target, bool strict);

/// InternalError where a chain is not of the plan's launches, or lacks arguments.
void verify(const std::vector<Chain>& chains, const kernel::Plan& plan);
std::string print(const std::vector<Chain>& chains);

/// Whether a step outside of all chains launches the kernel, by Plan::kernels.
std::vector<bool> launched_alone(const kernel::Plan& plan, const std::vector<Chain>& chains);

} // namespace egret::compiler
