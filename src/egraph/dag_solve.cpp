// Solving a DAG extraction problem component by component: bounded exact search, or local search
// from the best trees.
#include "egraph/dag.h"

#include "support/fail.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace egret::egraph {
namespace {

constexpr std::uint32_t kNone = Extraction::kNone;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// The solution as it stands: a node for every class that is needed, with the number of its users.
class State {
public:
  explicit State(const DagProblem& problem)
      : problem_(problem), chosen_(problem.problem.classes(), kNone),
        users_(problem.problem.classes(), 0), mark_(problem.problem.classes(), 0) {
    for (std::uint32_t cls = 0; cls < chosen_.size(); ++cls) {
      if (!problem.options[cls].empty())
        chosen_[cls] = problem.options[cls][0];
    }
    for (std::uint32_t root : problem.roots)
      need(root);
  }
  double cost() const { return cost_; }
  bool needed(std::uint32_t cls) const { return users_[cls] != 0; }
  std::uint32_t chosen(std::uint32_t cls) const { return chosen_[cls]; }

  /// Whether `node` can be chosen for its class without a cycle.
  bool acyclic_with(std::uint32_t cls, std::uint32_t node) {
    if (problem_.cycle[cls] == kNone)
      return true;
    ++stamp_;
    stack_ = problem_.kids[node];
    while (!stack_.empty()) {
      std::uint32_t at = stack_.back();
      stack_.pop_back();
      if (at == cls)
        return false;
      if (mark_[at] == stamp_ || problem_.cycle[at] != problem_.cycle[cls])
        continue;
      mark_[at] = stamp_;
      for (std::uint32_t kid : problem_.kids[chosen_[at]])
        stack_.push_back(kid);
    }
    return true;
  }
  /// Puts another node in place of a needed class's.
  void change(std::uint32_t cls, std::uint32_t node) {
    std::uint32_t old = chosen_[cls];
    chosen_[cls] = node;
    cost_ += cost_of(node) - cost_of(old);
    for (std::uint32_t kid : problem_.kids[node])
      need(kid);
    for (std::uint32_t kid : problem_.kids[old])
      release(kid);
  }
  /// Sets the choice of a class whether it is needed or not.
  void assign(std::uint32_t cls, std::uint32_t node) {
    if (needed(cls))
      change(cls, node);
    else
      chosen_[cls] = node;
  }
  DagSolution solution() const {
    DagSolution out;
    out.node.assign(chosen_.size(), kNone);
    for (std::uint32_t cls = 0; cls < chosen_.size(); ++cls) {
      if (users_[cls] != 0) {
        out.node[cls] = chosen_[cls];
        out.cost += cost_of(chosen_[cls]); // summed afresh: no rounding from the way here
      }
    }
    return out;
  }

private:
  double cost_of(std::uint32_t node) const { return problem_.problem.nodes[node].cost; }
  void need(std::uint32_t root) {
    stack_.assign(1, root);
    while (!stack_.empty()) {
      std::uint32_t cls = stack_.back();
      stack_.pop_back();
      if (users_[cls]++ != 0)
        continue;
      cost_ += cost_of(chosen_[cls]);
      const auto& kids = problem_.kids[chosen_[cls]];
      stack_.insert(stack_.end(), kids.begin(), kids.end());
    }
  }
  void release(std::uint32_t root) {
    stack_.assign(1, root);
    while (!stack_.empty()) {
      std::uint32_t cls = stack_.back();
      stack_.pop_back();
      if (--users_[cls] != 0)
        continue;
      cost_ -= cost_of(chosen_[cls]);
      const auto& kids = problem_.kids[chosen_[cls]];
      stack_.insert(stack_.end(), kids.begin(), kids.end());
    }
  }

  const DagProblem& problem_;
  std::vector<std::uint32_t> chosen_, users_, mark_, stack_;
  std::uint32_t stamp_ = 0;
  double cost_ = 0;
};

/// Depth-first search over the choices of one component, cheapest first, cut off by a lower bound.
/// Classes outside are settled: mandatory ones cost nothing more. One object serves all components;
/// it clears only what it used.
class ExactSearch {
public:
  explicit ExactSearch(const DagProblem& problem)
      : problem_(problem), node_(problem.problem.classes(), kNone),
        open_now_(problem.problem.classes(), false), mark_(problem.problem.classes(), 0) {}

  /// True if the search was complete; best() then is optimal, and else the best of what was seen.
  bool run(const State& outside, const std::vector<std::uint32_t>& component, std::uint64_t steps) {
    outside_ = &outside;
    steps_ = steps;
    cost_ = bound_ = 0;
    best_cost_ = kInfinite;
    best_.clear();
    for (std::uint32_t cls : component)
      open(cls);
    descend();
    for (std::uint32_t cls : open_) {
      node_[cls] = kNone;
      open_now_[cls] = false;
    }
    open_.clear();
    return steps_ != 0;
  }
  const std::vector<std::pair<std::uint32_t, std::uint32_t>>& best() const { return best_; }

private:
  double least(std::uint32_t cls) const {
    double out = kInfinite;
    for (std::uint32_t node : problem_.options[cls])
      out = std::min(out, problem_.problem.nodes[node].cost);
    return out;
  }
  void open(std::uint32_t cls) {
    open_.push_back(cls);
    open_now_[cls] = true;
    bound_ += least(cls);
  }
  /// The node a class has now, kNone if that is still open. Mandatory classes of other components
  /// keep theirs.
  std::uint32_t current(std::uint32_t cls) const {
    return problem_.mandatory[cls] && !open_now_[cls] ? outside_->chosen(cls) : node_[cls];
  }
  bool closes_cycle(std::uint32_t cls, std::uint32_t node) {
    if (problem_.cycle[cls] == kNone)
      return false;
    ++stamp_;
    stack_ = problem_.kids[node];
    while (!stack_.empty()) {
      std::uint32_t at = stack_.back();
      stack_.pop_back();
      if (at == cls)
        return true;
      if (mark_[at] == stamp_ || problem_.cycle[at] != problem_.cycle[cls] || current(at) == kNone)
        continue;
      mark_[at] = stamp_;
      const auto& kids = problem_.kids[current(at)];
      stack_.insert(stack_.end(), kids.begin(), kids.end());
    }
    return false;
  }

  /// One for every decided class; explicit, since components may be deep.
  struct Frame {
    std::uint32_t cls;
    std::size_t option;
    std::size_t opened; ///< classes that the present option opened
    double cost_before, bound_before;
    std::size_t next_open;
  };

  void take_back(Frame& frame) {
    for (; frame.opened != 0; --frame.opened) {
      open_now_[open_.back()] = false;
      open_.pop_back();
    }
    node_[frame.cls] = kNone;
    cost_ = frame.cost_before;
    bound_ = frame.bound_before;
  }

  void descend() {
    std::vector<Frame> frames;
    if (open_.empty())
      return;
    frames.push_back({open_[0], 0, 0, cost_, bound_, 1});
    while (!frames.empty() && steps_ != 0) {
      Frame& frame = frames.back();
      take_back(frame);
      const auto& options = problem_.options[frame.cls];
      if (frame.option == options.size()) {
        frames.pop_back();
        continue;
      }
      std::uint32_t node = options[frame.option++];
      --steps_;
      bound_ -= least(frame.cls);
      cost_ += problem_.problem.nodes[node].cost;
      if (cost_ + bound_ >= best_cost_ || closes_cycle(frame.cls, node))
        continue;
      node_[frame.cls] = node;
      for (std::uint32_t kid : problem_.kids[node]) {
        if (!problem_.mandatory[kid] && !open_now_[kid]) {
          open(kid);
          ++frame.opened;
        }
      }
      if (cost_ + bound_ >= best_cost_)
        continue;
      std::size_t next = frame.next_open;
      if (next < open_.size()) {
        frames.push_back({open_[next], 0, 0, cost_, bound_, next + 1});
        continue;
      }
      best_cost_ = cost_;
      best_.clear();
      for (std::uint32_t cls : open_)
        best_.emplace_back(cls, node_[cls]);
    }
  }

  const DagProblem& problem_;
  const State* outside_ = nullptr;
  std::uint64_t steps_ = 0;
  std::vector<std::uint32_t> node_; ///< of the open classes that are decided
  std::vector<bool> open_now_;      ///< needed in this search, decided or not
  std::vector<std::uint32_t> mark_, stack_;
  std::uint32_t stamp_ = 0;
  std::vector<std::uint32_t> open_; ///< in the order in which they are decided
  double cost_ = 0, bound_ = 0, best_cost_ = kInfinite;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> best_;
};

/// Changes one class at a time while that helps.
void improve(const DagProblem& problem, State& state, int passes) {
  for (int pass = 0; pass < passes; ++pass) {
    double before = state.cost();
    for (std::uint32_t cls = 0; cls < problem.options.size(); ++cls) {
      if (!state.needed(cls) || problem.options[cls].size() < 2)
        continue;
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
  bool exact = true;
  ExactSearch search(problem);
  for (const auto& component : problem.components) {
    double before = state.cost();
    exact &= search.run(state, component, options.exact_steps);
    if (search.best().empty())
      continue;
    // The parts of a component depend on each other: try all of it, keep it if it is better.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> undo;
    for (auto [cls, node] : search.best()) {
      undo.emplace_back(cls, state.chosen(cls));
      state.assign(cls, node);
    }
    if (!(state.cost() < before - 1e-9 * std::abs(before))) {
      for (auto at = undo.rbegin(); at != undo.rend(); ++at)
        state.assign(at->first, at->second);
    }
  }
  DagSolution out = state.solution();
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
  return solve(DagProblem(problem, roots, {}), options);
}

std::vector<DagSolution> best_dags(const Extraction& problem, std::span<const std::uint32_t> roots,
                                   std::size_t count, const DagOptions& options) {
  // After Lawler: a solution other than the best lacks one of its nodes, so forbidding each in turn
  // covers all others.
  struct Candidate {
    DagSolution solution;
    std::vector<bool> forbidden;
    std::size_t order;
  };
  std::vector<DagSolution> out;
  std::vector<Candidate> pool;
  std::set<std::vector<bool>> tried;
  std::size_t serial = 0;
  auto add = [&](std::vector<bool> forbidden) {
    DagProblem reduced(problem, roots, forbidden);
    if (reduced.feasible)
      pool.push_back({solve(reduced, options), std::move(forbidden), serial++});
  };
  add(std::vector<bool>(problem.nodes.size(), false));
  while (!pool.empty() && out.size() < count) {
    auto best =
        std::min_element(pool.begin(), pool.end(), [](const Candidate& a, const Candidate& b) {
          return a.solution.cost != b.solution.cost ? a.solution.cost < b.solution.cost
                                                    : a.order < b.order;
        });
    Candidate taken = std::move(*best);
    pool.erase(best);
    if (std::none_of(out.begin(), out.end(),
                     [&](const DagSolution& s) { return s.node == taken.solution.node; }))
      out.push_back(taken.solution);
    std::vector<bool> forbidden = taken.forbidden;
    for (std::uint32_t cls = 0; cls < problem.classes() && out.size() < count; ++cls) {
      std::uint32_t node = taken.solution.node[cls];
      if (node == kNone || problem.class_nodes[cls + 1] - problem.class_nodes[cls] < 2)
        continue;
      std::vector<bool> next = forbidden;
      next[node] = true;
      if (tried.insert(next).second)
        add(std::move(next));
    }
  }
  return out;
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
    DagProblem reduced(noisy, roots, {});
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
