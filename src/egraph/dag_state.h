// A DAG solution as it stands while it is being improved.
#pragma once

#include "egraph/dag.h"

#include <cstdint>
#include <vector>

namespace egret::egraph {

/// The solution as it stands: a node for every class that is needed, with the number of its users.
class State {
public:
  /// Starts from the best trees, but for the classes that `preset` (may be empty) has a node for.
  explicit State(const DagProblem& problem, const std::vector<std::uint32_t>& preset = {})
      : problem_(problem), chosen_(problem.problem.classes(), Extraction::kNone),
        users_(problem.problem.classes(), 0), mark_(problem.problem.classes(), 0) {
    for (std::uint32_t cls = 0; cls < chosen_.size(); ++cls) {
      if (!preset.empty() && preset[cls] != Extraction::kNone)
        chosen_[cls] = preset[cls];
      else if (!problem.options[cls].empty())
        chosen_[cls] = problem.options[cls][0];
      climbs_ += chosen_[cls] != Extraction::kNone && climbs(cls, chosen_[cls]);
    }
    for (std::uint32_t root : problem.roots)
      need(root);
  }
  double cost() const { return cost_; }
  bool needed(std::uint32_t cls) const { return users_[cls] != 0; }
  std::uint32_t chosen(std::uint32_t cls) const { return chosen_[cls]; }
  const std::vector<std::uint32_t>& choices() const { return chosen_; }
  /// Classes looked at so far: a measure of the time spent, the same on every machine.
  std::uint64_t work() const { return work_; }

  /// Whether `node` can be chosen for its class without a cycle.
  bool acyclic_with(std::uint32_t cls, std::uint32_t node) {
    if (problem_.cycle[cls] == Extraction::kNone)
      return true;
    // Where every choice goes down in tree cost there is no way around.
    if (climbs_ == 0 && !climbs(cls, node))
      return true;
    ++stamp_;
    stack_ = problem_.kids[node];
    while (!stack_.empty()) {
      std::uint32_t at = stack_.back();
      stack_.pop_back();
      ++work_;
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
    climbs_ += climbs(cls, node);
    climbs_ -= climbs(cls, old);
    chosen_[cls] = node;
    cost_ += cost_of(node) - cost_of(old);
    for (std::uint32_t kid : problem_.kids[node])
      need(kid);
    for (std::uint32_t kid : problem_.kids[old])
      release(kid);
  }
  DagSolution solution() const {
    DagSolution out;
    out.node.assign(chosen_.size(), Extraction::kNone);
    for (std::uint32_t cls = 0; cls < chosen_.size(); ++cls) {
      if (users_[cls] != 0) {
        out.node[cls] = chosen_[cls];
        out.cost += cost_of(chosen_[cls]); // summed afresh: no rounding from the way here
      }
    }
    return out;
  }

private:
  /// Whether a node has a child that is no cheaper, as a tree, than its class.
  bool climbs(std::uint32_t cls, std::uint32_t node) const {
    for (std::uint32_t kid : problem_.kids[node]) {
      if (!(problem_.trees.cost[kid] < problem_.trees.cost[cls]))
        return true;
    }
    return false;
  }
  double cost_of(std::uint32_t node) const { return problem_.problem.nodes[node].cost; }
  void need(std::uint32_t root) {
    stack_.assign(1, root);
    while (!stack_.empty()) {
      std::uint32_t cls = stack_.back();
      stack_.pop_back();
      ++work_;
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
      ++work_;
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
  std::size_t climbs_ = 0; ///< classes whose choice climbs
  std::uint64_t work_ = 0;
  double cost_ = 0;
};

} // namespace egret::egraph
