#include "egraph/dag_exact.h"

#include "egraph/flat_map.h"

#include <algorithm>

namespace egret::egraph {
LocalSolution local_solution(const DagProblem& problem, const std::vector<std::uint32_t>& chosen,
                             const std::vector<std::uint32_t>& component) {
  LocalSolution out;
  std::vector<std::uint32_t> stack = component;
  FlatMap32 seen;
  while (!stack.empty()) {
    std::uint32_t cls = stack.back();
    stack.pop_back();
    out.picks.emplace_back(cls, chosen[cls]);
    out.cost += problem.problem.nodes[chosen[cls]].cost;
    for (std::uint32_t kid : problem.kids[chosen[cls]]) {
      if (problem.mandatory[kid] || seen.find(kid) != FlatMap32::kNone)
        continue;
      seen.at(kid) = 1;
      stack.push_back(kid);
    }
  }
  return out;
}

double ExactSearch::least(std::uint32_t cls) const {
  double out = kInfinite;
  for (std::uint32_t node : problem_.options[cls])
    out = std::min(out, problem_.problem.nodes[node].cost);
  return out;
}

void ExactSearch::open(std::uint32_t cls) {
  open_.push_back(cls);
  open_now_[cls] = true;
  bound_ += least(cls);
}

/// The node a class has now, kNone if that is still open. Mandatory classes of other components
/// keep theirs.
std::uint32_t ExactSearch::current(std::uint32_t cls) const {
  return problem_.mandatory[cls] && !open_now_[cls] ? (*outside_)[cls] : node_[cls];
}

bool ExactSearch::closes_cycle(std::uint32_t cls, std::uint32_t node) {
  if (problem_.cycle[cls] == kNone)
    return false;
  ++stamp_;
  stack_ = problem_.kids[node];
  std::uint64_t seen = 0;
  bool closes = false;
  while (!stack_.empty() && !closes) {
    std::uint32_t at = stack_.back();
    stack_.pop_back();
    closes = at == cls;
    if (mark_[at] == stamp_ || problem_.cycle[at] != problem_.cycle[cls] || current(at) == kNone)
      continue;
    mark_[at] = stamp_;
    ++seen;
    const auto& kids = problem_.kids[current(at)];
    stack_.insert(stack_.end(), kids.begin(), kids.end());
  }
  constexpr std::uint64_t kVisitsPerStep = 8;
  spend(seen / kVisitsPerStep);
  return closes;
}

void ExactSearch::take_back(Frame& frame) {
  for (; frame.opened != 0; --frame.opened) {
    open_now_[open_.back()] = false;
    open_.pop_back();
  }
  node_[frame.cls] = kNone;
  cost_ = frame.cost_before;
  bound_ = frame.bound_before;
}

bool ExactSearch::too_dear() const {
  return cost_ + bound_ >= (best_.size() == count_ ? best_.back().cost : limit_);
}

/// Every class is decided: files the solution among the best.
void ExactSearch::keep() {
  LocalSolution found;
  found.cost = cost_;
  for (std::uint32_t cls : open_)
    found.picks.emplace_back(cls, node_[cls]);
  constexpr std::uint64_t kPicksPerStep = 16;
  spend(open_.size() / kPicksPerStep);
  auto at = std::upper_bound(
      best_.begin(), best_.end(), found.cost,
      [](double cost, const LocalSolution& solution) { return cost < solution.cost; });
  best_.insert(at, std::move(found));
  if (best_.size() > count_)
    best_.pop_back();
}

void ExactSearch::descend() {
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
    if (too_dear() || closes_cycle(frame.cls, node))
      continue;
    node_[frame.cls] = node;
    for (std::uint32_t kid : problem_.kids[node]) {
      if (!problem_.mandatory[kid] && !open_now_[kid]) {
        open(kid);
        ++frame.opened;
      }
    }
    if (too_dear())
      continue;
    std::size_t next = frame.next_open;
    if (next < open_.size())
      frames.push_back({open_[next], 0, 0, cost_, bound_, next + 1});
    else
      keep();
  }
}

bool ExactSearch::run(const std::vector<std::uint32_t>& outside,
                      const std::vector<std::uint32_t>& component, std::uint64_t steps,
                      std::size_t count, double limit) {
  outside_ = &outside;
  steps_ = steps;
  count_ = count;
  limit_ = limit;
  cost_ = bound_ = 0;
  best_.clear();
  if (component.size() >= steps_)
    return false; // it would not get through once
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

} // namespace egret::egraph
