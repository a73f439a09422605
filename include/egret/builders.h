// Kernels of the user's own making, which compete with the compiler's.
#pragma once

#include "egret/ir.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace egret {

/// A kernel that a program needs, for a builder to look at.
struct KernelSite {
  std::string name;   ///< as reports have it, such as "matmul_sum"
  std::string device; ///< that it is for, such as "cpu" or "cuda"
  /// The operations that it computes. Inputs are what it reads: inputs of the program and what
  /// other kernels have stored; outputs are what it stores. Sizes may be symbolic.
  ir::Graph graph;
  std::string loops;    ///< its axes, loads and bodies, for people (docs/kernels.md)
  std::string schedule; ///< of the kernel that the compiler has for it
  double seconds = 0;   ///< that a launch of this one is predicted to take
};

/// What a builder offers for a kernel.
struct KernelClaim {
  /// A schedule tree or a template with its parameters, as CompileOptions::schedules takes them.
  std::string schedule = {};
  /// The score: seconds that a launch takes. Empty: what the cost model predicts for the schedule.
  std::optional<double> seconds = std::nullopt;
};

/// Looks at kernels one by one and claims those that it can make; nothing for all others. May be
/// called by several threads at once. What it throws is thrown by the compilation.
struct KernelBuilder {
  std::string name;
  std::function<std::optional<KernelClaim>(const KernelSite&)> claim;
};

/// While one lives, its builder takes part in all compilations of the process, of lazy values as of
/// compiled functions. Of the claims on a kernel the one with the least seconds wins, if they are
/// less than those of the compiler's own, and if the kernel passes verification: its results are
/// compared with the meaning of its operations, as those of searched kernels are. A schedule that
/// does not fit its kernel loses. explain() and reports say what was claimed, and why it won or
/// lost. Plans are kept by the builders that took part.
class BuilderScope {
public:
  /// Error(Value) for a builder without `claim`. A claim whose seconds are negative or no number
  /// loses.
  explicit BuilderScope(KernelBuilder builder);
  ~BuilderScope();
  BuilderScope(const BuilderScope&) = delete;

private:
  std::shared_ptr<const KernelBuilder> builder_;
};

} // namespace egret
