// The k best solutions of a DAG extraction problem: the best few of every component, which are
// independent of each other, combined.
#include "egraph/dag.h"
#include "egraph/dag_exact.h"
#include "egraph/dag_state.h"

#include <algorithm>
#include <limits>

namespace egret::egraph {
namespace {

void sort_and_cut(std::vector<LocalSolution>& solutions, std::size_t count) {
  for (LocalSolution& solution : solutions)
    std::sort(solution.picks.begin(), solution.picks.end());
  std::stable_sort(solutions.begin(), solutions.end(), [](const auto& a, const auto& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.picks < b.picks;
  });
  solutions.erase(std::unique(solutions.begin(), solutions.end(),
                              [](const auto& a, const auto& b) { return a.picks == b.picks; }),
                  solutions.end());
  if (solutions.size() > count)
    solutions.resize(count);
}

/// Where a component is too large to search: what it has now, and that with one class changed.
void add_neighbours(const DagProblem& problem, State& state,
                    const std::vector<std::uint32_t>& component,
                    std::vector<LocalSolution>& solutions) {
  LocalSolution now = local_solution(problem, state.choices(), component);
  std::uint64_t room = 200000; // picks looked at: bounds the time
  for (auto [cls, node] : now.picks) {
    for (std::uint32_t other : problem.options[cls]) {
      if (other == node || !state.acyclic_with(cls, other))
        continue;
      state.change(cls, other);
      solutions.push_back(local_solution(problem, state.choices(), component));
      state.change(cls, node);
      std::uint64_t spent = solutions.back().picks.size() + 1;
      if (spent >= room) {
        solutions.push_back(std::move(now));
        return;
      }
      room -= spent;
    }
  }
  solutions.push_back(std::move(now));
}

/// One choice for each of the first components: the last component's, and where the others' is.
struct Combination {
  double cost = 0;
  std::uint32_t before = kNone; ///< in the list of the component before
  std::uint32_t pick = 0;
};

/// The `count` cheapest of all combinations of two lists, both cheapest first.
std::vector<Combination> combine(const std::vector<Combination>& before,
                                 const std::vector<LocalSolution>& solutions, std::size_t count) {
  std::vector<Combination> out;
  for (std::uint32_t b = 0; b < before.size(); ++b) {
    // With i better ones before it in each list, a pair has (b + 1) (i + 1) - 1 better pairs.
    for (std::uint32_t i = 0; i < solutions.size() && (b + 1) * (i + 1) <= count; ++i)
      out.push_back({before[b].cost + solutions[i].cost, b, i});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& x, const auto& y) { return x.cost < y.cost; });
  if (out.size() > count)
    out.resize(count);
  return out;
}

} // namespace

std::vector<DagSolution> best_dags(const Extraction& extraction,
                                   std::span<const std::uint32_t> roots, std::size_t count,
                                   const DagOptions& options) {
  DagProblem problem(extraction, roots, DagProblem::Keep::All);
  if (!problem.feasible || count == 0)
    return {};
  DagSolution best = best_dag(extraction, roots, options);
  State state(problem, best.node);
  ExactSearch search(problem);
  std::uint64_t left = exact_steps_in_all(problem);
  bool exact = true;
  std::vector<std::vector<LocalSolution>> local(problem.components.size());
  std::vector<std::vector<Combination>> combined(problem.components.size() + 1);
  combined[0] = {Combination{}};
  for (std::size_t c = 0; c < problem.components.size(); ++c) {
    const auto& component = problem.components[c];
    std::uint64_t steps = std::min(options.exact_steps, left);
    bool complete = search.run(state.choices(), component, steps, count);
    left -= steps - std::min(steps, search.steps_left());
    local[c] = search.best();
    exact &= complete;
    if (!complete)
      add_neighbours(problem, state, component, local[c]);
    sort_and_cut(local[c], count);
    combined[c + 1] = combine(combined[c], local[c], count);
  }
  std::vector<DagSolution> out;
  for (std::uint32_t i = 0; i < combined.back().size(); ++i) {
    std::vector<std::uint32_t> chosen = state.choices();
    std::uint32_t at = i;
    for (std::size_t c = problem.components.size(); c-- > 0;) {
      const Combination& here = combined[c + 1][at];
      for (auto [cls, node] : local[c][here.pick].picks)
        chosen[cls] = node;
      at = here.before;
    }
    out.push_back(State(problem, chosen).solution());
    out.back().exact = exact;
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.cost < b.cost; });
  return out;
}

} // namespace egret::egraph
