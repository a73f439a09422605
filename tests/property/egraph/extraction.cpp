// Extraction against brute force: every acyclic choice of nodes on small random e-graphs.
#include "egraph/dag.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

namespace egret::egraph {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// A random e-graph: classes 0 .. n-1, each with some nodes over random classes, cycles included.
Engine random_graph(std::mt19937& random, std::uint32_t classes, std::uint32_t most_nodes) {
  Engine engine;
  SortId sort = engine.signature.add_sort({"S", SortKind::Eq, {}, true});
  auto pick = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  std::vector<Value> ids;
  for (std::uint32_t c = 0; c < classes; ++c)
    ids.push_back(engine.classes.make());
  std::uint32_t serial = 0;
  for (std::uint32_t c = 0; c < classes; ++c) {
    std::uint32_t count = 1 + pick(most_nodes);
    for (std::uint32_t i = 0; i < count; ++i) {
      std::uint32_t arity = c + 1 == classes ? 0 : pick(3);
      Function function;
      function.name = "f" + std::to_string(serial++);
      function.inputs.assign(arity, sort);
      function.output = sort;
      function.cost = pick(8);
      FunctionId id = engine.add_function(function);
      std::vector<Value> args;
      for (std::uint32_t a = 0; a < arity; ++a)
        args.push_back(
            ids[pick(4) == 0 ? pick(classes)
                             : std::min(c + 1 + pick(3), classes - 1)]); // mostly downwards
      engine.table(id).append(args.data(), ids[c]);
    }
  }
  return engine;
}

/// Costs of all acyclic solutions from a root, by enumerating every choice of a node for every
/// class.
std::multiset<double> all_solutions(const Extraction& problem, std::uint32_t root) {
  std::multiset<double> costs;
  std::set<std::vector<std::uint32_t>> seen;
  std::vector<std::uint32_t> chosen(problem.classes());
  for (std::size_t c = 0; c < chosen.size(); ++c)
    chosen[c] = problem.class_nodes[c];
  for (;;) {
    double cost = dag_cost(problem, std::span(&root, 1), chosen);
    if (cost < kInfinite) {
      // Only what is reached from the root makes a solution.
      std::vector<std::uint32_t> used(chosen.size(), Extraction::kNone), stack{root};
      while (!stack.empty()) {
        std::uint32_t c = stack.back();
        stack.pop_back();
        if (used[c] != Extraction::kNone)
          continue;
        used[c] = chosen[c];
        for (std::uint32_t kid : problem.kids(problem.nodes[chosen[c]]))
          stack.push_back(kid);
      }
      if (seen.insert(used).second)
        costs.insert(cost);
    }
    std::size_t c = 0;
    while (c < chosen.size() && ++chosen[c] == problem.class_nodes[c + 1]) {
      chosen[c] = problem.class_nodes[c];
      ++c;
    }
    if (c == chosen.size())
      return costs;
  }
}

TEST(ExtractionProperty, DagExtractionIsOptimalOnSmallGraphs) {
  std::mt19937 random(1);
  int feasible = 0, shared_matters = 0;
  for (int round = 0; round < 400; ++round) {
    Engine engine = random_graph(random, 4 + random() % 5, 3);
    Extraction problem(engine, declared_costs(engine));
    std::uint32_t root = problem.dense[0];
    std::multiset<double> costs = all_solutions(problem, root);
    if (costs.empty()) {
      EXPECT_THROW(best_dag(problem, std::span(&root, 1)), Error);
      continue;
    }
    ++feasible;
    DagSolution best = best_dag(problem, std::span(&root, 1));
    EXPECT_TRUE(best.exact);
    EXPECT_DOUBLE_EQ(best.cost, *costs.begin()) << "round " << round;
    EXPECT_DOUBLE_EQ(dag_cost(problem, std::span(&root, 1), best.node), best.cost);
    Choice trees = best_trees(problem);
    shared_matters += dag_cost(problem, std::span(&root, 1), trees.node) > best.cost;
    // With no exact search, local search still gives a valid solution that is no better.
    DagSolution local = best_dag(problem, std::span(&root, 1), {0, 6});
    EXPECT_GE(local.cost, best.cost);
    EXPECT_DOUBLE_EQ(dag_cost(problem, std::span(&root, 1), local.node), local.cost);
  }
  EXPECT_GT(feasible, 200);
  EXPECT_GT(shared_matters, 5); // the test saw cases in which tree extraction is not optimal
}

TEST(ExtractionProperty, TheBestSolutionsComeInOrderAndWithoutRepeats) {
  std::mt19937 random(2);
  for (int round = 0; round < 150; ++round) {
    Engine engine = random_graph(random, 2 + random() % 4, 3);
    Extraction problem(engine, declared_costs(engine));
    std::uint32_t root = problem.dense[0];
    std::multiset<double> costs = all_solutions(problem, root);
    std::vector<DagSolution> found = best_dags(problem, std::span(&root, 1), 5);
    ASSERT_EQ(found.size(), std::min<std::size_t>(5, costs.size())) << "round " << round;
    auto expected = costs.begin();
    std::set<std::vector<std::uint32_t>> different;
    for (const DagSolution& solution : found) {
      EXPECT_DOUBLE_EQ(solution.cost, *expected++) << "round " << round;
      different.insert(solution.node);
    }
    EXPECT_EQ(different.size(), found.size());
  }
}

TEST(ExtractionProperty, SamplesAreValidAndRepeatable) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    Engine engine = random_graph(random, 6, 3);
    Extraction problem(engine, declared_costs(engine));
    std::uint32_t root = problem.dense[0];
    if (all_solutions(problem, root).empty())
      continue;
    auto once = sample_dags(problem, std::span(&root, 1), 8, 42, 2);
    auto again = sample_dags(problem, std::span(&root, 1), 8, 42, 2);
    for (std::size_t i = 0; i < once.size(); ++i) {
      EXPECT_EQ(once[i].node, again[i].node);
      EXPECT_LT(once[i].cost, kInfinite);
    }
  }
}

TEST(ExtractionProperty, TreeCostsAreTheLeastOfAllTrees) {
  // Bellman-Ford to a fixed point is the reference for Knuth's algorithm.
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    Engine engine = random_graph(random, 12, 4);
    Extraction problem(engine, declared_costs(engine));
    std::vector<double> cost(problem.classes(), kInfinite);
    for (bool moved = true; moved;) {
      moved = false;
      for (const Extraction::Node& node : problem.nodes) {
        double total = node.cost;
        for (std::uint32_t kid : problem.kids(node))
          total += cost[kid];
        if (total < cost[node.cls]) {
          cost[node.cls] = total;
          moved = true;
        }
      }
    }
    EXPECT_EQ(best_trees(problem).cost, cost);
  }
}

} // namespace
} // namespace egret::egraph
