// Exact search over one component of a DAG extraction problem.
#pragma once

#include "egraph/dag.h"

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace egret::egraph {

/// What a component may choose: a node for each of its classes that is then needed, and the sum of
/// their costs.
struct LocalSolution {
  double cost = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> picks; ///< class, node
};

/// What a choice of node for every class means for one component.
LocalSolution local_solution(const DagProblem& problem, const std::vector<std::uint32_t>& chosen,
                             const std::vector<std::uint32_t>& component);

/// Depth-first search over the choices of one component, cheapest first, cut off by a lower bound.
/// Classes outside are settled: mandatory ones cost nothing more. One object serves all components;
/// it clears only what it used.
class ExactSearch {
public:
  explicit ExactSearch(const DagProblem& problem)
      : problem_(problem), node_(problem.problem.classes(), Extraction::kNone),
        open_now_(problem.problem.classes(), false), mark_(problem.problem.classes(), 0) {}

  /// Looks for the `count` cheapest solutions, those no cheaper than `limit` left out. True if the
  /// search was complete; then best() is what was asked for, and else the best of what was seen.
  bool run(const std::vector<std::uint32_t>& outside, const std::vector<std::uint32_t>& component,
           std::uint64_t steps, std::size_t count = 1,
           double limit = std::numeric_limits<double>::infinity());
  /// Cheapest first.
  const std::vector<LocalSolution>& best() const { return best_; }
  std::uint64_t steps_left() const { return steps_; }

private:
  /// One for every decided class; explicit, since components may be deep.
  struct Frame {
    std::uint32_t cls;
    std::size_t option;
    std::size_t opened; ///< classes that the present option opened
    double cost_before, bound_before;
    std::size_t next_open;
  };

  double least(std::uint32_t cls) const;
  void open(std::uint32_t cls);
  std::uint32_t current(std::uint32_t cls) const;
  bool closes_cycle(std::uint32_t cls, std::uint32_t node);
  void take_back(Frame& frame);
  void descend();
  bool too_dear() const;
  void keep();
  void spend(std::uint64_t steps) { steps_ -= steps < steps_ ? steps : steps_; }

  const DagProblem& problem_;
  const std::vector<std::uint32_t>* outside_ = nullptr;
  std::uint64_t steps_ = 0;
  std::size_t count_ = 1;
  std::vector<std::uint32_t> node_; ///< of the open classes that are decided
  std::vector<bool> open_now_;      ///< needed in this search, decided or not
  std::vector<std::uint32_t> mark_, stack_;
  std::uint32_t stamp_ = 0;
  std::vector<std::uint32_t> open_; ///< in the order in which they are decided
  double cost_ = 0, bound_ = 0, limit_ = 0;
  std::vector<LocalSolution> best_;
};

} // namespace egret::egraph
