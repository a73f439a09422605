// Solving a DAG extraction problem component by component: bounded exact search, or local search
// from the best trees.
#include "egraph/dag.h"
#include "egraph/dag_exact.h"
#include "egraph/dag_state.h"

#include "support/fail.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace egret::egraph {
namespace {

/// Changes one class at a time while that helps.
void improve(const DagProblem& problem, State& state, int passes) {
  // A change may touch much of a large graph; the bound keeps all of them together near linear.
  constexpr std::uint64_t kWorkPerClass = 100;
  const std::uint64_t enough = state.work() + kWorkPerClass * (problem.options.size() + 100);
  for (int pass = 0; pass < passes; ++pass) {
    double before = state.cost();
    for (std::uint32_t cls = 0; cls < problem.options.size(); ++cls) {
      if (!state.needed(cls) || problem.options[cls].size() < 2)
        continue;
      if (state.work() > enough)
        return;
      std::uint32_t best = state.chosen(cls);
      double best_cost = state.cost();
      for (std::uint32_t node : problem.options[cls]) {
        if (node == best || !state.acyclic_with(cls, node))
          continue;
        std::uint32_t old = state.chosen(cls);
        state.change(cls, node);
        if (state.cost() < best_cost - 1e-9 * std::abs(best_cost)) {
          best_cost = state.cost();
          best = node;
        } else {
          state.change(cls, old);
        }
      }
    }
    if (!(state.cost() < before - 1e-9 * std::abs(before)))
      return;
  }
}

DagSolution solve(const DagProblem& problem, const DagOptions& options) {
  if (!problem.feasible)
    fail(ErrorKind::Value, "extract: a root has no term that can be extracted");
  State state(problem);
  improve(problem, state, options.passes);
  std::vector<std::uint32_t> chosen = state.choices();
  bool exact = true;
  ExactSearch search(problem);
  std::uint64_t left = exact_steps_in_all(problem);
  for (const auto& component : problem.components) {
    LocalSolution now = local_solution(problem, chosen, component);
    // The parts of a component depend on each other: all of a better solution is taken, or nothing.
    std::uint64_t steps = std::min(options.exact_steps, left);
    exact &= search.run(chosen, component, steps, 1, now.cost - 1e-9 * std::abs(now.cost));
    left -= steps - std::min(steps, search.steps_left());
    if (search.best().empty())
      continue;
    for (auto [cls, node] : search.best()[0].picks)
      chosen[cls] = node;
  }
  DagSolution out = State(problem, chosen).solution();
  out.exact = exact;
  return out;
}

} // namespace

double dag_cost(const Extraction& problem, std::span<const std::uint32_t> roots,
                const std::vector<std::uint32_t>& chosen) {
  enum : std::uint8_t { kNew, kOpen, kDone };
  std::vector<std::uint8_t> state(problem.classes(), kNew);
  std::vector<std::uint32_t> stack;
  double cost = 0;
  for (std::uint32_t root : roots) {
    stack.push_back(root);
    while (!stack.empty()) {
      std::uint32_t cls = stack.back();
      if (cls == kNone || chosen[cls] == kNone)
        return kInfinite;
      if (state[cls] != kNew) {
        state[cls] = kDone;
        stack.pop_back();
        continue;
      }
      state[cls] = kOpen;
      cost += problem.nodes[chosen[cls]].cost;
      for (std::uint32_t kid : problem.kids(problem.nodes[chosen[cls]])) {
        if (kid != kNone && state[kid] == kOpen)
          return kInfinite;
        if (kid == kNone || state[kid] == kNew)
          stack.push_back(kid);
      }
    }
  }
  return cost;
}

DagSolution best_dag(const Extraction& problem, std::span<const std::uint32_t> roots,
                     const DagOptions& options) {
  return solve(DagProblem(problem, roots), options);
}

std::vector<DagSolution> sample_dags(const Extraction& problem,
                                     std::span<const std::uint32_t> roots, std::size_t count,
                                     std::uint64_t seed, double heat) {
  std::vector<DagSolution> out;
  auto uniform = [&seed] { // SplitMix64
    seed += 0x9E3779B97F4A7C15u;
    std::uint64_t z = seed;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return static_cast<double>((z ^ z >> 31) >> 11) * 0x1p-53;
  };
  for (std::size_t i = 0; i < count; ++i) {
    Extraction noisy = problem;
    for (Extraction::Node& node : noisy.nodes)
      node.cost = (node.cost + 1e-12) * std::exp(heat * (2 * uniform() - 1));
    DagProblem reduced(noisy, roots);
    if (!reduced.feasible)
      fail(ErrorKind::Value, "extract: a root has no term that can be extracted");
    DagSolution solution = State(reduced).solution();
    solution.cost = dag_cost(problem, roots, solution.node);
    solution.exact = false;
    out.push_back(std::move(solution));
  }
  return out;
}

} // namespace egret::egraph
