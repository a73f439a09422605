// Rules whose atoms form a cycle: right, and without work for paths that do not close.
#include "egraph/match.h"
#include "programs.h"

#include <fmt/format.h>

#include <random>
#include <set>
#include <utility>

namespace egret::egraph {
namespace {

using test::Session;

using Edges = std::set<std::pair<int, int>>;

std::string facts(const Edges& edges) {
  std::string out;
  for (auto [a, b] : edges)
    out += fmt::format("(e {} {})", a, b);
  return out;
}

constexpr const char* kTriangles = "(relation e (i64 i64)) (relation t (i64 i64 i64))"
                                   "(rule ((e a b) (e b c) (e c a)) ((t a b c)))";

/// Steps for the triangles of a hub with so many spokes there and back, of which there are none.
std::uint64_t steps_of_star(int spokes) {
  std::string edges; // in turns: a sample at even distances would be of one direction
  for (int i = 1; i <= spokes; ++i)
    edges += fmt::format("(e 0 {0}) (e {0} 0)", i);
  Session s;
  s.run(kTriangles + edges);
  const std::uint64_t before = s.interpreter.engine.match_steps;
  s.run("(run 1)");
  EXPECT_EQ(s.size("t"), 0u);
  return s.interpreter.engine.match_steps - before;
}

TEST(Cyclic, PathsThroughAHubThatDoNotCloseAreNotWalked) {
  EXPECT_LT(steps_of_star(2048), 100u * 2048);
  EXPECT_LT(steps_of_star(4096), 3 * steps_of_star(2048));
}

/// Edges between few hubs and many others, both ways as it comes.
Edges skewed(std::mt19937& random, int nodes, int count) {
  Edges edges;
  const auto node = [&] {
    const double u = std::uniform_real_distribution<double>(0, 1)(random);
    return static_cast<int>(nodes * u * u * u * u);
  };
  while (static_cast<int>(edges.size()) < count)
    edges.insert({node(), node()});
  return edges;
}

std::uint64_t triangles_of(const Edges& edges) {
  std::uint64_t count = 0;
  for (auto [a, b] : edges) {
    for (auto at = edges.lower_bound({b, 0}); at != edges.end() && at->first == b; ++at)
      count += edges.count({at->second, a});
  }
  return count;
}

/// Matches of the first rule that hold a row newer than its last run.
std::uint64_t matches_of(Session& s, bool* crosses = nullptr) {
  Engine& engine = s.interpreter.engine;
  MatchOptions options;
  options.seen = engine.rules[0].seen;
  const Forest forest = plan_rules(engine, {0}, Evaluation::SemiNaive, options.seen);
  if (crosses) {
    for (const PlanNode& node : forest.nodes)
      *crosses |= node.step.crossing.has_value();
  }
  return Matcher(engine, forest, options).run()[0].count;
}

TEST(Cyclic, EveryTriangleIsFoundOnceWithTheRowsThatAreNew) {
  bool crosses = false;
  for (unsigned seed = 0; seed < 6; ++seed) {
    std::mt19937 random(seed);
    const Edges edges = skewed(random, 300, 1500);
    Edges first, second;
    for (const auto& edge : edges)
      (random() % 3 == 0 ? second : first).insert(edge);
    for (const int threads : {1, 2}) {
      Session s;
      s.interpreter.engine.threads = threads;
      s.run(kTriangles + facts(first));
      EXPECT_EQ(matches_of(s, &crosses), triangles_of(first)) << seed;
      s.run("(run 1)" + facts(second));
      EXPECT_EQ(matches_of(s, &crosses), triangles_of(edges) - triangles_of(first)) << seed;
      s.run("(run 1)");
      EXPECT_EQ(s.size("t"), triangles_of(edges)) << seed;
    }
  }
  EXPECT_TRUE(crosses);
}

TEST(Cyclic, TermsOfTheSameArgumentsMeet) {
  // bar and baz are known by their values only: going through either gives the arguments of both.
  constexpr int kSide = 30;
  Session s;
  std::string program =
      "(function bar (i64 i64) i64 :no-merge) (function baz (i64 i64) i64 :no-merge)"
      "(relation foo (i64 i64)) (relation out (i64 i64 i64 i64))"
      "(rule ((foo x y) (= x (bar a b)) (= y (baz b a))) ((out x y a b)))";
  const auto bar = [](int a, int b) { return a * b % 7; };
  const auto baz = [](int b, int a) { return b % 9 == 0 ? 0 : a + b; };
  std::uint64_t expected = 0;
  for (int a = 0; a < kSide; ++a) {
    for (int b = 0; b < kSide; ++b) {
      program += fmt::format("(set (bar {0} {1}) {2}) (set (baz {0} {1}) {3})", a, b, bar(a, b),
                             baz(a, b));
    }
  }
  for (int x = 0; x < 7; ++x) {
    for (int y = 0; y < 2 * kSide; y += 2) {
      program += fmt::format("(foo {} {})", x, y);
      for (int a = 0; a < kSide; ++a) {
        for (int b = 0; b < kSide; ++b)
          expected += bar(a, b) == x && baz(b, a) == y;
      }
    }
  }
  bool crosses = false;
  s.run(program);
  EXPECT_EQ(matches_of(s, &crosses), expected);
  EXPECT_TRUE(crosses);
}

} // namespace
} // namespace egret::egraph
