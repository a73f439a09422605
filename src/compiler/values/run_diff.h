// Where two saved runs differ first, and what made the difference.
#pragma once

#include "compiler/values/saved_run.h"

#include <cstdint>
#include <string>
#include <vector>

namespace egret::compiler {

/// How far two values of a dtype may be apart, relative to the larger of the two and of their
/// arrays' root mean squares: 1e-9 for f64, 1e-4 for f32, 1e-2 for f16, 5e-2 for bf16, 0.2 for
/// f8e4m3, 0.4 for f8e5m2; 0 for integers and bool.
double diff_tolerance(DType type) noexcept;

struct DiffOptions {
  double scale = 1; ///< multiplies every tolerance
};

struct RunDiff {
  enum class Culprit : std::uint8_t {
    None,     ///< no difference
    Inputs,   ///< the runs have other inputs
    Kernel,   ///< a kernel does not compute what its graph says, from the operands that it read
    Rules,    ///< kernels are right, and rules made nodes that the other run does not have
    Pass,     ///< likewise, without any rule
    Graph,    ///< kernels are right, and other graphs were given
    Rounding, ///< equal graphs and kernels that are right: the differences of operands have grown
    Unknown   ///< values that are needed were not saved whole, or are too many to compute again
  } culprit = Culprit::None;
  std::vector<std::string> names; ///< Kernel: its name and schedule; Rules: rules; Pass: passes
  int run = -1;                   ///< 0 or 1: the run that the culprit belongs to; -1: none does

  ir::NodeId nodes[2] = {ir::kNoNode, ir::kNoNode}; ///< of the first difference, in both graphs
  std::vector<int> lines;                  ///< of the text that was given, of the first difference
  std::string text_of_node, detail;        ///< likewise, for people
  std::size_t compared = 0, differing = 0; ///< values
  std::size_t alone[2] = {0, 0};           ///< values that only one run has
  bool cut_short[2] = {false, false};      ///< the run lacks values that it was to have

  bool complete() const noexcept { return !cut_short[0] && !cut_short[1]; }
  /// Whether the runs are known to be equal: values were compared, none differs, and neither run
  /// was cut short.
  bool agrees() const noexcept { return compared > 0 && differing == 0 && complete(); }
  std::string text() const; ///< for people
};
const char* name_of(RunDiff::Culprit culprit) noexcept;

/// Compares values that compute the same: equal nodes, else nodes that are equal without dtypes,
/// else equal outputs; in the order of the second run's graph. Values that are not whole are
/// compared by their summaries. The culprit is found by computing the launches between the first
/// difference and values that agree again, from the operands that were saved.
RunDiff diff_runs(const SavedRun& first, const SavedRun& second, const DiffOptions& options = {});

} // namespace egret::compiler
