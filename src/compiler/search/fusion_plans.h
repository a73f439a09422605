// The search over whole programs: which of the graphs that rules found, and how it is cut into
// kernels.
#pragma once

#include "compiler/compilation.h"
#include "compiler/compiled.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace egret::compiler {

/// A fusion plan by name: a candidate graph, and changes of that graph's greedy partition.
struct FusionPlanChoice {
  int graph = 0;                    ///< of the candidates
  std::vector<std::uint64_t> moves; ///< in ascending order
  friend bool operator==(const FusionPlanChoice&, const FusionPlanChoice&) = default;
};
/// One line, which parse_schedule() takes too: "fusion_plan graph=1 m000000000000000b=1".
std::string to_string(const FusionPlanChoice& choice);
/// Error(Parse) for what is no such line.
FusionPlanChoice parse_fusion_plan(std::string_view text);

/// Seconds of runs of the best program so far and of a challenger, by round.
using CompareFusionPlans = std::function<std::vector<std::vector<double>>(
    const Compiled& best, const Compiled& challenger)>;

/// A fusion plan on which all passes have run, or those before one that found no memory for it
/// (Compilation::over_limit).
struct FusionPlan {
  FusionPlanChoice choice;
  Compilation compilation;
};

/// Graphs of one program in normal form, at least one: the cheapest one that rules extracted first,
/// then the one that they were given where it is another one, then others of theirs.
using CandidateGraphs = std::vector<std::shared_ptr<const CandidateGraph>>;

/// Finds the fusion plan of a program and the schedules of its regions: a loop around the passes of
/// Phase::Regions and after. With Effort::Search and above, beside the cheapest graph's greedy
/// fusion plan, others are tried that a model of the machine does not put far behind: their new
/// regions are searched, and the whole program is timed in turn with the best one so far, with all
/// of its kernels in their places. What is faster by a clear margin is kept, and so are further
/// changes of it. What was chosen is remembered under the program's hash.
class FusionPlanSearch {
public:
  FusionPlanSearch(const ir::Graph& graph, CandidateGraphs candidates, const Options& options,
                   backend::Device& device, KernelCache& cache,
                   std::vector<PassTime>* times = nullptr,
                   CompareFusionPlans compare = {}); ///< empty: by time_in_turn()
  ~FusionPlanSearch();
  FusionPlanSearch(const FusionPlanSearch&) = delete;
  FusionPlanSearch& operator=(const FusionPlanSearch&) = delete;

  FusionPlan run();

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace egret::compiler
