// Extraction where a shared class is paid once: the cheapest set of chosen nodes that covers the
// roots without a cycle. The problem is NP-hard; it is cut down to independent components of
// classes that have a real choice, which are then small enough, mostly, to be solved exactly.
#pragma once

#include "egraph/extract.h"

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace egret::egraph {

/// No node, or no class; the cost of what has no solution.
inline constexpr std::uint32_t kNone = Extraction::kNone;
inline constexpr double kInfinite = std::numeric_limits<double>::infinity();

struct DagOptions {
  std::uint64_t exact_steps =
      20000;      ///< search steps for each component before it is left to local search
  int passes = 6; ///< rounds of local search
};

/// The chosen node of every needed class (kNone for the others), and the sum of their costs.
struct DagSolution {
  std::vector<std::uint32_t> node;
  double cost = 0;
  bool exact = true; ///< proven optimal
};

/// What is left of an extraction problem once nodes that no best solution needs are gone.
class DagProblem {
public:
  enum class Keep : std::uint8_t {
    Needed, ///< nodes that some best solution may need
    All     ///< every node that some solution can have
  };
  DagProblem(const Extraction& problem, std::span<const std::uint32_t> roots,
             Keep keep = Keep::Needed);

  const Extraction& problem;
  std::vector<std::uint32_t> roots;
  Choice trees; ///< best trees with the nodes that are left
  std::vector<std::vector<std::uint32_t>>
      kids; ///< per node, distinct; empty for nodes that are gone
  std::vector<std::vector<std::uint32_t>>
      options; ///< per reachable class: its nodes, cheapest tree first
  std::vector<std::uint32_t>
      cycle;                   ///< per class: kNone, or its group of classes that reach each other
  std::vector<bool> mandatory; ///< classes that every solution contains
  std::vector<std::vector<std::uint32_t>>
      components; ///< mandatory classes with a choice, in independent groups
  bool feasible = true;

private:
  void prune(Keep keep);
  void drop_dominated(std::uint32_t cls);
  void mark_mandatory();
  std::vector<std::uint32_t> surely_needed(std::uint32_t node, std::size_t siblings) const;
  std::vector<std::uint32_t> strong_components() const;
  void split();
};

/// How many steps of exact search all components may take together, so that extraction stays near
/// linear.
inline std::uint64_t exact_steps_in_all(const DagProblem& problem) {
  return 1000000 + 20 * std::uint64_t{problem.options.size()};
}

/// The best solution found. Throws Error where a root has no term.
DagSolution best_dag(const Extraction& problem, std::span<const std::uint32_t> roots,
                     const DagOptions& options = {});
/// The `count` best different solutions, best first; exact where every component could be searched.
std::vector<DagSolution> best_dags(const Extraction& problem, std::span<const std::uint32_t> roots,
                                   std::size_t count, const DagOptions& options = {});
/// Solutions drawn at random, cheaper ones more often; `heat` is the spread of the noise on each
/// node's cost (0: none).
std::vector<DagSolution> sample_dags(const Extraction& problem,
                                     std::span<const std::uint32_t> roots, std::size_t count,
                                     std::uint64_t seed, double heat = 1);
/// The sum of the costs of what the roots need under a choice; infinite where it has a cycle or a
/// gap.
double dag_cost(const Extraction& problem, std::span<const std::uint32_t> roots,
                const std::vector<std::uint32_t>& chosen);

} // namespace egret::egraph
