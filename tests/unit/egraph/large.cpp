// Depth and size: terms of many levels, large graphs with cycles, containers of which few change.
#include "egraph/containers.h"
#include "egraph/dag.h"
#include "egraph/serialize.h"
#include "programs.h"

#include <numeric>

namespace egret::egraph {
namespace {

using test::error_of;
using test::Session;

std::string nested(int levels, const std::string& open, const std::string& core) {
  std::string out;
  out.reserve(static_cast<std::size_t>(levels) * (open.size() + 1) + core.size());
  for (int i = 0; i < levels; ++i)
    out += open;
  out += core;
  return out.append(static_cast<std::size_t>(levels), ')');
}

constexpr int kLevels = 100000;

TEST(Large, DeepTermsAreReadBuiltExtractedAndWritten) {
  Session session;
  std::string term = nested(kLevels, "(S ", "(Z)");
  std::string out =
      session.run("(datatype N (Z) (S N)) (let $t " + term + ") (run 1) (check (= $t " + term +
                  ")) (extract $t) (print-function S 2)");
  EXPECT_NE(out.find(term), std::string::npos);
  EXPECT_EQ(session.size("S"), static_cast<std::uint32_t>(kLevels));
  EXPECT_GT(to_json(session.interpreter.engine, {}).size(), std::size_t{kLevels} * 10);
  EXPECT_GT(to_dot(session.interpreter.engine, {}).size(), std::size_t{kLevels} * 10);
}

TEST(Large, DeepPatternsAndActionsRun) {
  Session session;
  std::string term = nested(kLevels, "(S ", "(Z)");
  session.run("(datatype N (Z) (S N)) (relation R (N)) (rule (" + term +
              ") ((R (Z)))) (rule ((R x)) ((R " + nested(kLevels + 1, "(S ", "(Z)") + "))) " +
              term + " (run 3)");
  EXPECT_EQ(session.size("S"), static_cast<std::uint32_t>(kLevels + 1));
  EXPECT_EQ(session.size("R"), 2u);
}

TEST(Large, DeepPrimitivesAndCommandsRunOrAreRefused) {
  Session session;
  EXPECT_EQ(session.run("(extract " + nested(kLevels, "(+ 1 ", "0") + ")"), "100000\n");
  session.run(nested(kLevels + 1, "(fail ", "(check (= 1 2))")); // an odd number of them
  EXPECT_NE(error_of(nested(kLevels, "(fail ", "(check (= 1 2))")), "");
  EXPECT_NE(error_of("(ruleset r) (run-schedule " + nested(kLevels, "(saturate ", "r") + ")")
                .find("nested too deep"),
            std::string::npos);
  EXPECT_NE(error_of(std::string(kLevels, '(')), "");
}

/// A ring of classes, each with a leaf and a term over the next class: one large cycle.
Engine ring(std::uint32_t classes) {
  Engine engine;
  SortId sort = engine.signature.add_sort({"E", SortKind::Eq, {}, true});
  auto declare = [&](const char* name, std::vector<SortId> inputs, std::uint64_t cost) {
    Function function;
    function.name = name;
    function.inputs = std::move(inputs);
    function.output = sort;
    function.cost = cost;
    return engine.add_function(std::move(function));
  };
  FunctionId next = declare("Next", {sort}, 1), leaf = declare("Leaf", {sorts::kI64}, 5);
  FunctionId both = declare("Both", {sort, sort}, 2);
  for (std::uint32_t i = 0; i < classes; ++i)
    engine.classes.make();
  for (std::uint32_t i = 0; i < classes; ++i) {
    Value after = (i + 1) % classes, far = (i * 7 + 3) % classes, number = engine.pools.from_i64(i);
    engine.table(next).append(&after, i);
    engine.table(leaf).append(&number, i);
    Value pair[] = {after, far};
    if (i % 3 == 0)
      engine.table(both).append(pair, i);
  }
  return engine;
}

TEST(Large, DagExtractionOfALargeCycleTakesBoundedWork) {
  constexpr std::uint32_t kClasses = 100000;
  Engine engine = ring(kClasses);
  Extraction problem(engine, declared_costs(engine));
  EXPECT_EQ(problem.classes(), kClasses);
  std::vector<std::uint32_t> roots(1000);
  for (std::uint32_t i = 0; i < roots.size(); ++i)
    roots[i] = problem.dense[i * 100];
  DagSolution best = best_dag(problem, roots);
  EXPECT_DOUBLE_EQ(dag_cost(problem, roots, best.node), best.cost);
  Choice trees = best_trees(problem);
  EXPECT_LE(best.cost, dag_cost(problem, roots, trees.node));
  std::vector<DagSolution> found = best_dags(problem, roots, 3);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_LE(found[0].cost, best.cost);
  for (const DagSolution& solution : found)
    EXPECT_DOUBLE_EQ(dag_cost(problem, roots, solution.node), solution.cost);
}

TEST(Large, OnlyContainersThatHoldAMovedClassAreMadeAnew) {
  std::string program = R"((datatype E (A i64)) (sort V (Vec E)) (sort W (Vec V)) (sort S (Set E))
    (sort M (Map i64 V)) (function f (i64) W :no-merge) (function g (i64) S :no-merge)
    (function h (M) i64 :merge (min old new)))";
  for (int i = 0; i < 500; ++i) {
    std::string n = std::to_string(i), v = "(vec-of (A " + n + ") (A 1000))";
    program += "(set (f " + n + ") (vec-of " + v + " (vec-of)))(set (g " + n + ") (set-of (A " + n +
               ") (A 2000)))(set (h (map-insert (map-empty) 1 " + v + ")) " + n + ")";
  }
  Session session;
  session.run(program);
  Engine& engine = session.interpreter.engine;
  auto id = [&](int i) {
    Value key = engine.pools.from_i64(i);
    FunctionId a = *engine.signature.find_function("A");
    return engine.classes.find(engine.table(a).output(engine.table(a).find(&key)));
  };
  engine.classes.join(id(3), id(4));
  Engine copy = engine;
  std::size_t moved = 0;
  for (const auto& of_sort : rebuild_containers(copy, engine.classes.displaced()))
    moved += of_sort.size();
  EXPECT_EQ(moved, 4u); // a vector, the vector that holds it, a set and a map
  rebuild(engine);
  check_invariants(engine);
  EXPECT_EQ(session.size("h"), 499u);
  session.run("(check (= (f 3) (f 4)) (= (g 3) (g 4)) (!= (f 3) (f 5)))"
              "(union (A 1000) (A 3)) (check (= (f 3) (vec-of (vec-of (A 3) (A 3)) (vec-of))))");
  check_invariants(engine);
}

} // namespace
} // namespace egret::egraph
