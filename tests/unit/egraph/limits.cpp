// Limits of runs: that they hold in the middle of an iteration, that a run which they cut short
// says so, and that acting in batches gives what acting at once gives.
#include "egraph/serialize.h"
#include "egret/egraph.h"
#include "programs.h"

#include <fmt/format.h>

namespace egret::egraph {
namespace {

using test::Session;

/// A relation r of `rows` numbers, and s, which is to hold all pairs.
std::string pairs(int rows) {
  std::string out = "(relation r (i64)) (relation s (i64 i64)) (rule ((r x) (r y)) ((s x y)))";
  for (int i = 0; i < rows; ++i)
    out += fmt::format("(r {})", i);
  return out;
}

TEST(Limits, CancelAndTimeEndTheSearchForMatches) {
  // 4 * 10^8 matches: all of them would be found first if the limit did not hold meanwhile.
  EGraph g;
  g.run_program(pairs(20000));
  const std::atomic<bool> cancelled{true};
  RunReport report = g.run(g.ruleset(""), 1, {.seconds = 0});
  EXPECT_EQ(report.stop, StopReason::Time);
  EXPECT_LT(report.match_steps, 1000000u);
  report = g.run(g.ruleset(""), 1, {.cancel = &cancelled});
  EXPECT_EQ(report.stop, StopReason::Cancelled);
  EXPECT_LT(report.match_steps, 1000000u);
}

TEST(Limits, AReachedTimeIsSeenWhileMatchesAreFound) {
  Session s;
  s.run(pairs(3000));
  Engine& engine = s.interpreter.engine;
  engine.limits.deadline = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  Forest forest = plan_rules(engine, {0}, Evaluation::Naive);
  Matcher matcher(engine, forest, {});
  std::vector<Matches> found = matcher.run();
  EXPECT_EQ(matcher.cut(), StopReason::Time);
  EXPECT_LT(found[0].count, 20000u); // of 9,000,000
  engine.limits = {};
}

TEST(Limits, ARunThatWasCutSaysSoAlsoWhenItHasOneIteration) {
  EGraph g;
  g.run_program(pairs(100));
  RunReport report = g.run(g.ruleset(""), 1, {.rows = 5000});
  EXPECT_EQ(report.stop, StopReason::Rows);
  EXPECT_LE(report.rows, 5001u); // the match that exceeds the limit is the last one
  EXPECT_GT(report.rows, 4900u);
  EXPECT_EQ(g.run(g.ruleset(""), 1).stop, StopReason::Done);
  EXPECT_EQ(g.size(g.function("s")), 10000u); // what was cut off was not lost
  EXPECT_EQ(g.run(g.ruleset(""), 5, {.rows = 20000}).stop, StopReason::Done);
}

TEST(Limits, AProgramSaysThatItsRunWasCut) {
  Session s;
  s.interpreter.budget.rows = 5000;
  std::string out = s.run(pairs(100) + "(run 1)");
  EXPECT_NE(out.find("stopped: the budget of rows is used up"), std::string::npos) << out;
  EXPECT_EQ(s.interpreter.cut_runs, 1u);
}

TEST(Limits, MatchesAreCountedOverTheWholeRun) {
  for (int threads : {1, 3}) {
    EGraph g;
    g.set_threads(threads);
    g.run_program(pairs(200));
    RunReport report = g.run(g.ruleset(""), 1, {.matches = 1000});
    EXPECT_EQ(report.stop, StopReason::Matches);
    EXPECT_EQ(report.rules.at(0).matches, 1000u);
    EXPECT_EQ(g.size(g.function("s")), 1000u);
    report = g.run(g.ruleset(""), 1, {.matches = 40000});
    EXPECT_EQ(report.stop, StopReason::Done);
  }
}

TEST(Limits, MemoryBoundsTheRun) {
  EGraph g;
  g.run_program(pairs(800)); // 640,000 rows of 12 bytes and more
  const std::uint64_t limit = g.bytes() + (3 << 20);
  RunReport report = g.run(g.ruleset(""), 1, {.bytes = limit});
  EXPECT_EQ(report.stop, StopReason::Memory);
  EXPECT_LT(g.bytes(), limit + (3 << 20)); // an array may double between two looks
  EXPECT_GT(g.size(g.function("s")), 10000u);
}

TEST(Limits, AnInterruptedProgramEndsWithAnError) {
  std::atomic<bool> cancelled{false};
  Session s;
  s.run(pairs(10));
  s.interpreter.budget.cancel = &cancelled;
  s.run("(run 1)");
  cancelled = true;
  EXPECT_THROW(s.run("(print-size)"), Error);
  cancelled = false;
  EXPECT_EQ(s.run("(print-size s)"), "100\n");
}

/// What a program leaves behind, for batches of `words` words.
std::string result(const std::string& program, std::size_t words) {
  Session s;
  s.interpreter.engine.batch_words = words;
  s.run(program);
  check_invariants(s.interpreter.engine);
  return s.run("(print-size)");
}

TEST(Batches, ActingBeforeAllMatchesAreFoundGivesTheSame) {
  std::string edges;
  for (int i = 0; i < 60; ++i)
    edges += fmt::format("(edge {} {})(edge {} {})", i, (i * 7 + 1) % 60, i, (i * 3 + 5) % 60);
  const std::string programs[] = {
      // Rows that are added meanwhile are not matched in the same iteration.
      "(relation edge (i64 i64)) (relation path (i64 i64)) (rule ((edge a b)) ((path a b)))"
      "(rule ((path a b) (path b c)) ((path a c)))" +
          edges + "(run 3)",
      // Values that are replaced meanwhile are matched as they were.
      "(relation edge (i64 i64)) (function d (i64) i64 :merge (min old new)) (relation seen (i64 "
      "i64))"
      "(rule ((= x (d a)) (edge a b)) ((set (d b) (+ x 1))))"
      "(rule ((= x (d a)) (= y (d b)) (edge a b)) ((seen x y)))" +
          edges + "(set (d 0) 0) (run 4)",
      // Terms, unions, subsumed and deleted rows.
      "(datatype M (N i64) (Add M M)) (relation edge (i64 i64)) (relation gone (i64))"
      "(rule ((edge a b) (edge b c)) ((Add (N a) (N c)) (union (N a) (N (% c 7)))))"
      "(rule ((= e (Add x y)) (= e2 (Add y x))) ((subsume (Add x y))))"
      "(rule ((edge a b) (< a b)) ((delete (edge a b)) (gone a)))"
      "(rule ((edge a b) (gone b)) ((edge b a)))" +
          edges + "(run 4)"};
  for (const std::string& program : programs) {
    const std::string whole = result(program, std::size_t{1} << 24);
    for (std::size_t words : {1, 7, 100})
      EXPECT_EQ(result(program, words), whole) << words << "\n" << program.substr(0, 200);
  }
}

TEST(Batches, StoredMatchesStayWithinABatch) {
  Session s;
  s.run(pairs(300));
  Engine& engine = s.interpreter.engine;
  engine.batch_words = 1000;
  Forest forest = plan_rules(engine, {0}, Evaluation::Naive);
  MatchOptions options;
  std::size_t most = 0, batches = 0;
  options.drain = [&](std::vector<Matches>& found) {
    most = std::max(most, found[0].words.size());
    ++batches;
    found[0].words.clear();
    found[0].drained = found[0].count;
    return true;
  };
  Matcher matcher(engine, forest, std::move(options));
  EXPECT_EQ(matcher.run()[0].count, 90000u);
  EXPECT_LE(most, 1001u);
  EXPECT_EQ(batches, 180u);
}

TEST(Batches, ThreadsGiveTheSameBatches) {
  std::string dumps[2];
  for (int threads : {1, 3}) {
    Session s;
    s.interpreter.engine.threads = threads;
    s.interpreter.engine.batch_words = 5000;
    std::string rows;
    for (int i = 0; i < 20000; ++i)
      rows += fmt::format("(n {} {})", i, i % 100);
    s.run("(datatype M (N i64) (P M M)) (relation n (i64 i64))"
          "(rule ((n x k)) ((P (N k) (N x)))) (rule ((n x k) (> x 19000)) ((P (N x) (N k))))" +
          rows + "(run 2)");
    dumps[threads / 2] = to_json(s.interpreter.engine);
  }
  EXPECT_EQ(dumps[0], dumps[1]);
}

/// Steps of rebuilding, and of matching, for each of `count` unions at top level.
double union_steps(int count) {
  Session s;
  std::string program = "(datatype M (N i64) (A M M))";
  for (int i = 0; i < count; ++i)
    program += fmt::format("(A (N {}) (N {}))", i, i + 1);
  s.run(program);
  program.clear();
  for (int i = 0; i < count; ++i)
    program += fmt::format("(union (N {}) (N {}))", i, i + 1);
  const std::uint64_t before = s.interpreter.engine.rebuild_steps;
  s.run(program);
  return static_cast<double>(s.interpreter.engine.rebuild_steps - before) / count;
}

TEST(Work, UnionsOneByOneTakeAsMuchEachWhateverTheSize) {
  const double few = union_steps(200), many = union_steps(3200);
  EXPECT_LT(many, 2 * few); // 16 times where every rebuild looks at every row
  EXPECT_LT(many, 200);
}

TEST(Work, GlobalsAreNotLookedAtOneByOneForEveryUnion) {
  Session s;
  std::string program = "(datatype M (N i64))";
  constexpr int kGlobals = 2000;
  for (int i = 0; i < kGlobals; ++i)
    program += fmt::format("(let $n{} (N {}))", i, i);
  s.run(program);
  const std::uint64_t before = s.interpreter.engine.rebuild_steps;
  program.clear();
  for (int i = 0; i < kGlobals; i += 2)
    program += fmt::format("(union $n{} $n{})", i, i + 1);
  s.run(program + fmt::format("(check (= $n0 $n1) (= $n{} $n{}))", kGlobals - 2, kGlobals - 1));
  EXPECT_LT(s.interpreter.engine.rebuild_steps - before, 400u * kGlobals);
}

TEST(Work, DeletionsBesideSetsOfTheSameRowsKeepThem) {
  Session s;
  std::string program = "(function f (i64) i64 :merge new) (relation r (i64))"
                        "(rule ((= v (f x))) ((delete (f x))))"
                        "(rule ((= v (f x)) (r x)) ((set (f x) v)))";
  for (int i = 0; i < 3000; ++i)
    program +=
        fmt::format("(set (f {}) {})", i, i * 2) + (i % 3 == 0 ? fmt::format("(r {})", i) : "");
  s.run(program + "(run 1)");
  EXPECT_EQ(s.size("f"), 1000u);
  s.run("(check (= (f 3) 6))");
}

} // namespace
} // namespace egret::egraph
