// Cutting a DAG extraction problem down: dominated nodes, mandatory classes, independent
// components.
#include "egraph/dag.h"

#include <algorithm>
#include <limits>

namespace egret::egraph {
DagProblem::DagProblem(const Extraction& p, std::span<const std::uint32_t> root_classes, Keep keep)
    : problem(p), roots(root_classes.begin(), root_classes.end()) {
  std::sort(roots.begin(), roots.end());
  roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
  prune(keep);
  for (std::uint32_t root : roots)
    feasible &= root != kNone && trees.node[root] != kNone;
  if (!feasible)
    return;
  mark_mandatory();
  split();
}

void DagProblem::prune(Keep keep) {
  trees = best_trees(problem);
  kids.resize(problem.nodes.size());
  options.resize(problem.classes());
  std::vector<bool> seen(problem.classes(), false);
  std::vector<std::uint32_t> stack;
  auto visit = [&](std::uint32_t cls) {
    if (cls != kNone && !seen[cls]) {
      seen[cls] = true;
      stack.push_back(cls);
    }
  };
  for (std::uint32_t root : roots)
    visit(root);
  while (!stack.empty()) {
    std::uint32_t cls = stack.back();
    stack.pop_back();
    std::vector<std::pair<double, std::uint32_t>> ranked;
    for (std::uint32_t n = problem.class_nodes[cls]; n < problem.class_nodes[cls + 1]; ++n) {
      double tree = problem.nodes[n].cost;
      bool usable = true;
      for (std::uint32_t child : problem.kids(problem.nodes[n])) {
        usable &= child != kNone && child != cls && trees.node[child] != kNone;
        tree += usable ? trees.cost[child] : 0;
      }
      if (!usable)
        continue;
      std::span<const std::uint32_t> all = problem.kids(problem.nodes[n]);
      kids[n].assign(all.begin(), all.end());
      std::sort(kids[n].begin(), kids[n].end());
      kids[n].erase(std::unique(kids[n].begin(), kids[n].end()), kids[n].end());
      ranked.emplace_back(n == trees.node[cls] ? -1 : tree,
                          n); // the best tree's node first: it is known to be acyclic
    }
    std::sort(ranked.begin(), ranked.end());
    for (auto [tree, n] : ranked)
      options[cls].push_back(n);
    if (keep == Keep::Needed)
      drop_dominated(cls);
    for (std::uint32_t n : options[cls]) {
      for (std::uint32_t child : kids[n])
        visit(child);
    }
  }
}

/// A node is not needed if another one needs no more classes and costs no more: swapping it in
/// makes no solution worse.
void DagProblem::drop_dominated(std::uint32_t cls) {
  std::vector<std::uint32_t>& nodes = options[cls];
  constexpr std::size_t kMost = 64; // quadratic below
  std::vector<std::uint32_t> kept;
  for (std::uint32_t n : nodes) {
    bool dominated = false;
    for (std::size_t i = 0; i < std::min(kept.size(), kMost) && !dominated; ++i) {
      std::uint32_t other = kept[i];
      dominated =
          problem.nodes[other].cost <= problem.nodes[n].cost &&
          std::includes(kids[n].begin(), kids[n].end(), kids[other].begin(), kids[other].end());
    }
    if (!dominated)
      kept.push_back(n);
  }
  nodes = std::move(kept);
}

void DagProblem::mark_mandatory() {
  mandatory.assign(problem.classes(), false);
  std::vector<std::uint32_t> stack;
  auto mark = [&](std::uint32_t cls) {
    if (!mandatory[cls]) {
      mandatory[cls] = true;
      stack.push_back(cls);
    }
  };
  for (std::uint32_t root : roots)
    mark(root);
  while (!stack.empty()) {
    std::uint32_t cls = stack.back();
    stack.pop_back();
    std::vector<std::uint32_t> common = surely_needed(options[cls][0], options[cls].size()), next;
    for (std::size_t i = 1; i < options[cls].size() && !common.empty(); ++i) {
      std::vector<std::uint32_t> other = surely_needed(options[cls][i], options[cls].size());
      next.clear();
      std::set_intersection(common.begin(), common.end(), other.begin(), other.end(),
                            std::back_inserter(next));
      common.swap(next);
    }
    for (std::uint32_t child : common)
      mark(child);
  }
}

/// Classes that a node cannot do without, in order: its children and, where that is not too much,
/// what those need that have no choice.
std::vector<std::uint32_t> DagProblem::surely_needed(std::uint32_t node,
                                                     std::size_t siblings) const {
  constexpr std::size_t kMost = 64, kMostSiblings = 16;
  std::vector<std::uint32_t> out = kids[node];
  if (siblings < 2 || siblings > kMostSiblings)
    return out;
  for (std::size_t i = 0; i < out.size() && out.size() < kMost; ++i) {
    if (options[out[i]].size() != 1)
      continue;
    for (std::uint32_t kid : kids[options[out[i]][0]]) {
      if (std::find(out.begin(), out.end(), kid) == out.end())
        out.push_back(kid);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// Number of the strongly connected component of each class (Tarjan's algorithm, without
/// recursion).
std::vector<std::uint32_t> DagProblem::strong_components() const {
  std::size_t n = problem.classes();
  std::vector<std::uint32_t> number(n, kNone), low(n, 0), component(n, kNone), path;
  std::vector<bool> on_path(n, false);
  struct Frame {
    std::uint32_t cls;
    std::size_t option = 0, kid = 0;
  };
  std::uint32_t next_number = 0, next_component = 0;
  std::vector<Frame> stack;
  auto enter = [&](std::uint32_t cls) {
    number[cls] = low[cls] = next_number++;
    path.push_back(cls);
    on_path[cls] = true;
    stack.push_back({cls});
  };
  for (std::uint32_t root : roots) {
    if (number[root] == kNone)
      enter(root);
    while (!stack.empty()) {
      Frame& frame = stack.back();
      std::uint32_t cls = frame.cls;
      if (frame.option < options[cls].size()) {
        const auto& list = kids[options[cls][frame.option]];
        if (frame.kid == list.size()) {
          ++frame.option;
          frame.kid = 0;
          continue;
        }
        std::uint32_t child = list[frame.kid++];
        if (number[child] == kNone)
          enter(child);
        else if (on_path[child])
          low[cls] = std::min(low[cls], number[child]);
        continue;
      }
      if (low[cls] == number[cls]) {
        std::uint32_t member = kNone;
        do {
          member = path.back();
          path.pop_back();
          on_path[member] = false;
          component[member] = next_component;
        } while (member != cls);
        ++next_component;
      }
      stack.pop_back();
      if (!stack.empty())
        low[stack.back().cls] = std::min(low[stack.back().cls], low[cls]);
    }
  }
  return component;
}

/// Choices influence each other through the optional classes they share, and through cycles; all
/// else is independent.
void DagProblem::split() {
  std::size_t n = problem.classes();
  std::vector<std::uint32_t> parent(n);
  for (std::uint32_t i = 0; i < n; ++i)
    parent[i] = i;
  auto find = [&](std::uint32_t x) {
    while (parent[x] != x)
      x = parent[x] = parent[parent[x]];
    return x;
  };
  std::vector<std::uint32_t> strong = strong_components();
  std::vector<std::uint32_t> first_of(n, kNone), members(n, 0);
  for (std::uint32_t group : strong) {
    if (group != kNone)
      ++members[group];
  }
  cycle.assign(n, kNone);
  for (std::uint32_t cls = 0; cls < n; ++cls) {
    if (strong[cls] != kNone && members[strong[cls]] > 1)
      cycle[cls] = strong[cls];
  }
  for (std::uint32_t cls = 0; cls < n; ++cls) {
    if (options[cls].empty())
      continue;
    bool chooses = options[cls].size() > 1 || !mandatory[cls];
    if (chooses && cycle[cls] != kNone) {
      std::uint32_t& first = first_of[cycle[cls]];
      if (first == kNone)
        first = cls;
      else
        parent[find(cls)] = find(first);
    }
    for (std::uint32_t node : options[cls]) {
      for (std::uint32_t child : kids[node]) {
        if (!mandatory[child])
          parent[find(child)] = find(cls);
      }
    }
  }
  std::vector<std::uint32_t> place(n, kNone);
  for (std::uint32_t cls = 0; cls < n; ++cls) {
    if (!mandatory[cls] || options[cls].size() < 2)
      continue;
    std::uint32_t& at = place[find(cls)];
    if (at == kNone) {
      at = static_cast<std::uint32_t>(components.size());
      components.emplace_back();
    }
    components[at].push_back(cls);
  }
}

} // namespace egret::egraph
