// How matching spends its work: what it passes over, shares and plans anew, and that threads change
// nothing.
#include "egraph/match.h"
#include "egraph/serialize.h"
#include "egret/egraph.h"
#include "programs.h"

#include <fmt/format.h>

#include <algorithm>

namespace egret::egraph {
namespace {

using test::Session;

std::vector<std::uint32_t> all_rules(const Engine& engine) {
  std::vector<std::uint32_t> rules(engine.rules.size());
  for (std::uint32_t i = 0; i < rules.size(); ++i)
    rules[i] = i;
  return rules;
}

/// Paths in a graph, and some algebra whose rules use primitives.
const char* const kPaths = R"(
  (relation edge (i64 i64)) (relation path (i64 i64))
  (rule ((edge a b)) ((path a b)))
  (rule ((path a b) (edge b c)) ((path a c)))
  (datatype M (Num i64) (Add M M) (Mul M M))
  (rewrite (Add a b) (Add b a))
  (rewrite (Add a (Add b c)) (Add (Add a b) c))
  (rewrite (Mul a (Add b c)) (Add (Mul a b) (Mul a c)))
  (rule ((= e (Add (Num x) (Num y))) (< x y)) ((union e (Num (+ x y)))))
  (Mul (Num 2) (Add (Num 1) (Add (Num 3) (Add (Num 5) (Add (Num 7) (Num 11))))))
)";

/// `count` chains of three edges each.
std::string chains(int count) {
  std::string out;
  for (int i = 0; i < count * 4; ++i) {
    if (i % 4 != 3)
      out += "(edge " + std::to_string(i) + " " + std::to_string(i + 1) + ")";
  }
  return out;
}
/// So many that their edges alone are worth sharing.
constexpr int kManyChains = 5600;

TEST(Matching, ResultsAreTheSameForEveryNumberOfThreads) {
  std::vector<std::string> dumps;
  for (int threads : {1, 2, 4}) {
    Session session;
    session.interpreter.engine.threads = threads;
    session.run(kPaths + chains(kManyChains) + "(run 6)");
    dumps.push_back(to_json(session.interpreter.engine, {}));
  }
  EXPECT_GT(dumps[0].size(), 1000000u);
  EXPECT_EQ(dumps[0], dumps[1]);
  EXPECT_EQ(dumps[0], dumps[2]);
}

TEST(Matching, ManyRowsAreSharedAmongThreadsInTheOrderOfOne) {
  Session session;
  session.run(kPaths + chains(kManyChains) + "(run 3)");
  Engine& engine = session.interpreter.engine;
  Forest forest = plan_rules(engine, all_rules(engine), Evaluation::Naive);
  Matcher alone(engine, forest, {});
  std::vector<Matches> expected = alone.run();
  EXPECT_EQ(alone.shared_pieces(), 0u);
  engine.threads = 3;
  Matcher shared(engine, forest, {});
  std::vector<Matches> found = shared.run();
  EXPECT_GT(shared.shared_pieces(), 1u);
  EXPECT_EQ(shared.work(), alone.work());
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t r = 0; r < found.size(); ++r) {
    EXPECT_EQ(found[r].count, expected[r].count);
    EXPECT_TRUE(std::equal(found[r].words.begin(), found[r].words.end(), expected[r].words.begin(),
                           expected[r].words.end()));
  }
}

/// Rules whose premises make containers, apply functions and intern numbers, beside some that do
/// not: only the latter may be shared among threads, and read what the former interned.
const char* const kValues = R"(
  (datatype M (Num i64)) (sort V (Vec i64)) (sort S (Set i64)) (sort F (UnstableFn (i64) i64))
  (sort T (MultiSet i64)) (relation n (i64)) (relation m (i64)) (relation pairs (V i64)) (relation out (S))
  (relation small (i64)) (relation texts (String)) (relation halves (f64)) (relation bags (T))
  (function twice (i64) i64 :merge old)
  (rule ((n x) (= v (vec-of x (* x 1000003))) (= y (vec-get v 1))) ((pairs v y)))
  (rule ((pairs v y) (= s (set-of y (vec-length v)))) ((out s)))
  (rule ((m x) (< x 5000000020000) (!= x 5000000000007)) ((small x)))
  (rule ((n x) (= t (to-string x)) (= h (/ (to-f64 x) 2.0))) ((texts t) (halves h)))
  (rule ((n x) (= y (unstable-app (unstable-fn "*" 3000000) x)) (> y 0)) ((set (twice x) y)))
  (rule ((small y) (= x (- y 5000000000000)) (< x 400)
         (= b (unstable-multiset-map (unstable-fn "+" 5000000000) (multiset-of x x 1)))) ((bags b)))
)";

TEST(Matching, PremisesThatMakeValuesGiveTheSameForEveryNumberOfThreads) {
  std::string facts;
  for (int i = 0; i < 17000; ++i)
    facts += "(m " + std::to_string(5000000000000 + i) + ")";
  for (int i = 0; i < 500; ++i)
    facts += "(n " + std::to_string(i) + ")";
  std::vector<std::string> dumps;
  for (int threads : {1, 4}) {
    Session session;
    session.interpreter.engine.threads = threads;
    session.run(kValues + facts + "(run 3)");
    EXPECT_EQ(session.size("out"), 500u);
    EXPECT_EQ(session.size("bags"), 399u);
    Engine& engine = session.interpreter.engine;
    dumps.push_back(to_json(engine, {}));
    Forest forest = plan_rules(engine, all_rules(engine), Evaluation::Naive);
    Matcher matcher(engine, forest, {});
    matcher.run();
    EXPECT_EQ(matcher.shared_pieces() > 1, threads > 1);
  }
  EXPECT_EQ(dumps[0], dumps[1]);
}

/// A premise of `atoms` facts over as many relations, with two matches; a merge adds up what is
/// set, so a match that comes twice shows.
std::string long_premise(int atoms) {
  std::string relations, premise, facts;
  for (int i = 0; i < atoms; ++i) {
    std::string name = "r" + std::to_string(i);
    relations += "(relation " + name + " (i64))";
    premise += "(" + name + " x)";
    facts += "(" + name + " 10)(" + name + " 20)";
  }
  return relations + "(function sum () i64 :merge (+ old new))(set (sum) 0)" + "(rule (" + premise +
         ") ((set (sum) x)))" + facts;
}

TEST(Matching, PremisesOfAnyLengthMatchOnlyWhatIsNew) {
  for (int atoms : {3, 128, 129, 300}) {
    Session s;
    s.run(long_premise(atoms) + "(run 3)(check (= (sum) 30))");
    s.run("(r0 40)(r2 40)(run 2)(check (= (sum) 30))"); // matches nothing yet
    std::string rest;
    for (int i = 1; i < atoms; ++i)
      rest += "(r" + std::to_string(i) + " 40)";
    s.run(rest + "(run 2)(check (= (sum) 70))");
  }
}

TEST(Matching, FewRowsStayWithOneThread) {
  Session session;
  session.run(kPaths + chains(20) + "(run 3)");
  Engine& engine = session.interpreter.engine;
  engine.threads = 4;
  Forest forest = plan_rules(engine, all_rules(engine), Evaluation::Naive);
  Matcher matcher(engine, forest, {});
  matcher.run();
  EXPECT_EQ(matcher.shared_pieces(), 0u);
}

TEST(Matching, NumbersOfThreadsOutOfRangeAreErrors) {
  EGraph g;
  EXPECT_THROW(g.set_threads(0), Error);
  EXPECT_THROW(g.set_threads(65), Error);
  g.set_threads(2);
}

TEST(Matching, RulesWithoutNewRowsArePassedOverAtTheirRoot) {
  // 300 rules over 300 tables; one table gets a row.
  std::string program;
  for (int i = 0; i < 300; ++i) {
    std::string n = std::to_string(i);
    program += "(relation A" + n + " (i64)) (relation B" + n + " (i64)) (A" + n + " 1) (B" + n +
               " 1) (rule ((A" + n + " x) (B" + n + " x) (A" + n + " y)) ((B" + n + " y)))";
  }
  Session session;
  session.run(program + "(run 2) (A7 5)");
  Engine& engine = session.interpreter.engine;
  Forest forest = plan_rules(engine, all_rules(engine), Evaluation::SemiNaive);
  EXPECT_GT(forest.nodes.size(), 1800u);
  MatchOptions options;
  options.seen = engine.rules[7].seen;
  Matcher matcher(engine, forest, options);
  std::vector<Matches> found = matcher.run();
  EXPECT_LT(matcher.prepared(), 10u);
  for (std::size_t r = 0; r < found.size(); ++r) {
    EXPECT_EQ(found[r].count != 0, r == 7) << r;
    EXPECT_EQ(matcher.work()[r] != 0, r == 7) << r;
  }
}

TEST(Matching, EqualPremisesOfSeveralRulesAreMatchedOnce) {
  std::string program = "(relation P (i64 i64)) (relation Q (i64)) (relation R (i64 i64))";
  for (int i = 0; i < 50; ++i)
    program += "(relation S" + std::to_string(i) + " (i64)) (rule ((P x y) (P y z)) ((S" +
               std::to_string(i) + " z)))";
  Session session;
  session.run(program + "(P 1 2) (P 2 3) (P 3 4)");
  Engine& engine = session.interpreter.engine;
  Forest forest = plan_rules(engine, all_rules(engine), Evaluation::SemiNaive);
  EXPECT_EQ(forest.nodes.size(), 4u); // two atoms that may be new, one step more for each
  Matcher one_for_all(engine, forest, {});
  one_for_all.run();
  Forest single = plan_rules(engine, {0}, Evaluation::SemiNaive);
  Matcher one(engine, single, {});
  one.run();
  double all = 0;
  for (double work : one_for_all.work())
    all += work;
  EXPECT_NEAR(all, one.work()[0], 1e-6);
}

TEST(Matching, PlansFollowTheSizesOfTables) {
  Session session;
  session.run(R"((relation Big (i64 i64)) (relation Small (i64 i64)) (relation Out (i64))
    (rule ((Big x y) (Small y z)) ((Out z))) (Big 1 2) (Small 2 3))");
  Engine& engine = session.interpreter.engine;
  FunctionId big = *engine.signature.find_function("Big");
  FunctionId small = *engine.signature.find_function("Small");
  Forest forest = plan_rules(engine, {0}, Evaluation::Naive);
  EXPECT_EQ(engine.plans_made, 1u);
  plan_news(engine, forest, 0);
  EXPECT_EQ(engine.plans_made, 1u); // nothing changed
  auto first_table = [](const Forest& f) {
    return f
        .nodes[*std::find_if(f.roots.begin(), f.roots.end(),
                             [&](std::uint32_t n) { return f.nodes[n].rules_below != 0; })]
        .step.target;
  };
  std::string rows;
  for (int i = 0; i < 200; ++i)
    rows += "(Big " + std::to_string(i) + " " + std::to_string(i % 7) + ")";
  session.run(rows);
  plan_news(engine, forest, 0);
  EXPECT_EQ(engine.plans_made, 2u);
  EXPECT_EQ(forest.emits, 1u); // the former plan is gone
  EXPECT_EQ(first_table(forest), static_cast<std::uint32_t>(small));
  rows.clear();
  for (int i = 0; i < 5000; ++i)
    rows += "(Small " + std::to_string(i) + " 1)";
  session.run(rows);
  plan_news(engine, forest, 0);
  EXPECT_EQ(first_table(forest), static_cast<std::uint32_t>(big));
  EXPECT_EQ(first_table(plan_rules(engine, {0}, Evaluation::Naive)),
            static_cast<std::uint32_t>(big));
}

TEST(Matching, OnlyRulesWithNewRowsInTablesThatGrewArePlannedAnew) {
  // 40 rules over pairs of tables; one table grows beyond its size class.
  std::string program;
  for (int i = 0; i < 40; ++i)
    program += fmt::format("(relation A{0} (i64)) (relation B{0} (i64)) (relation C{0} (i64))"
                           "(rule ((A{0} x) (B{0} x)) ((C{0} x))) (A{0} 1) (B{0} 1) (A{0} 2)",
                           i);
  Session session;
  session.run(program + "(run 2)");
  Engine& engine = session.interpreter.engine;
  std::uint64_t made = engine.plans_made;
  std::string rows;
  for (int i = 0; i < 100; ++i)
    rows += fmt::format("(A7 {})", i);
  session.run(rows + "(run 1)");
  EXPECT_EQ(engine.plans_made - made, 1u); // from the new rows of A7
  made = engine.plans_made;
  session.run("(A7 200) (run 1) (A7 201) (run 1) (A3 9) (run 1) (A3 10) (run 2)");
  EXPECT_EQ(engine.plans_made - made, 1u); // from those of A3, which had none yet
  made = engine.plans_made;
  session.run("(B7 200) (run 1)");
  EXPECT_EQ(engine.plans_made - made, 1u);
  EXPECT_EQ(session.size("C7"), 2u);
}

TEST(Matching, PlansThatWereReplacedDoNotPileUp) {
  std::string program = "(relation grow (i64)) (grow 0)"
                        "(rule ((grow x)) ((grow (+ (* 2 x) 1)) (grow (+ (* 2 x) 2))))";
  for (int i = 0; i < 30; ++i)
    program += fmt::format("(relation B{0} (i64)) (relation C{0} (i64)) (B{0} {0})"
                           "(rule ((grow x) (B{0} x)) ((C{0} x)))",
                           i);
  Session session;
  session.run(program + "(run 14)");
  Engine& engine = session.interpreter.engine;
  EXPECT_GT(engine.plans_made, 100u);
  for (const PlanCache::Entry& entry : engine.rulesets[0].plans.entries) {
    EXPECT_LE(entry.forest.nodes.size(), 4 * entry.forest.emits + 130);
    std::size_t emits = 0;
    for (const PlanNode& node : entry.forest.nodes)
      emits += node.emits.size();
    EXPECT_EQ(emits, entry.forest.emits);
  }
  EXPECT_EQ(session.size("C29"), 1u);
}

double steps_of(const Matcher& matcher) {
  double steps = 0;
  for (double work : matcher.work())
    steps += work;
  return steps;
}

TEST(Matching, AValueThatManyRowsShareIsNotLookedUpWhereAnotherLeadsOn) {
  // Lists of two end in the one empty list: going on from an end, all other ends share its tail,
  // while one list holds it.
  constexpr int kLists = 400;
  std::string program =
      "(relation nil (i64)) (relation cons (i64 i64 i64)) (relation out (i64 i64))"
      "(rule ((nil n) (cons b n lb) (cons c n lc) (cons lb lc l)) ((out l c)))"
      "(nil 0)";
  for (int i = 1; i <= kLists; ++i)
    program += fmt::format("(cons {} 0 {})", i, 1000 + i);
  Session session;
  session.run(program);
  session.run("(run 1)");
  Engine& engine = session.interpreter.engine;
  EXPECT_EQ(session.size("out"), 0u);
  std::string more;
  for (int i = 1; i < kLists; ++i)
    more += fmt::format("(cons {} {} {})", 1000 + i, 1001 + i, 5000 + i);
  session.run(more);
  for (int i = 1; i <= kLists; ++i)
    session.run(fmt::format("(cons {} 0 {})", 2000 + i, 3000 + i));
  Forest forest = plan_rules(engine, {0}, Evaluation::SemiNaive, engine.rules[0].seen);
  MatchOptions options;
  options.seen = engine.rules[0].seen;
  Matcher matcher(engine, forest, options);
  EXPECT_EQ(matcher.run()[0].count, kLists - 1u);
  EXPECT_LT(steps_of(matcher), 40.0 * kLists);
}

TEST(Matching, TermsOfConstantsAreEstimatedByTheirOwnRows) {
  // All rows of `made` are of one of 300 classes, the one that the rule names.
  constexpr int kRows = 300;
  std::string program = "(datatype S (C i64)) (relation made (S i64)) (relation kind (i64 i64))"
                        "(relation op (i64)) (relation out (i64))"
                        "(rule ((op k) (made (C 0) m) (kind k m)) ((out m)))";
  for (int i = 0; i < kRows; ++i)
    program += fmt::format("(C {0}) (made (C 0) {0}) (kind {0} {0}) (kind {0} -1)", i);
  Session session;
  session.run(program + "(op -5) (run 1)");
  Engine& engine = session.interpreter.engine;
  for (int i = 0; i < kRows; ++i)
    session.run(fmt::format("(op {})", i));
  Forest forest = plan_rules(engine, {0}, Evaluation::SemiNaive, engine.rules[0].seen);
  MatchOptions options;
  options.seen = engine.rules[0].seen;
  Matcher matcher(engine, forest, options);
  EXPECT_EQ(matcher.run()[0].count, static_cast<std::uint64_t>(kRows));
  EXPECT_LT(steps_of(matcher), 20.0 * kRows);
}

TEST(Matching, RulesAreNotPlannedBeforeTheirGroundTermsAreThere) {
  Session session;
  session.run(
      "(datatype S (C i64)) (relation op (S i64)) (relation other (i64)) (relation out (i64))"
      "(rule ((op (C 7) n) (other n)) ((out n))) (op (C 1) 1) (op (C 2) 5) (other 1)"
      "(other 5) (run 1)");
  Engine& engine = session.interpreter.engine;
  Forest forest = plan_rules(engine, {0}, Evaluation::SemiNaive, engine.rules[0].seen);
  EXPECT_TRUE(forest.nodes.empty());
  session.run("(op (C 1) 5) (run 1) (C 7)");
  plan_news(engine, forest, engine.rules[0].seen);
  EXPECT_FALSE(forest.nodes.empty());
  session.run("(run 1)");
  EXPECT_EQ(session.size("out"), 0u);
  session.run("(op (C 7) 5) (run 1)");
  EXPECT_EQ(session.size("out"), 1u);
  session.run("(union (C 7) (C 1)) (run 1)"); // what was there before matches now
  EXPECT_EQ(session.size("out"), 2u);
}

TEST(Matching, AGroundTermThatComesLastMatchesWhatWasThere) {
  Session session;
  session.run("(datatype S (C i64)) (relation op (S)) (relation on ()) (relation out (S))"
              "(rule ((on) (op x)) ((out x))) (op (C 1)) (op (C 2)) (run 1) (op (C 3)) (run 1)");
  EXPECT_EQ(session.size("out"), 0u);
  session.run("(on) (run 1)");
  EXPECT_EQ(session.size("out"), 3u);
  session.run("(op (C 4)) (run 1) (delete (on)) (op (C 5)) (run 1)");
  EXPECT_EQ(session.size("out"), 4u);
  session.run("(on) (run 1)");
  EXPECT_EQ(session.size("out"), 5u);
}

TEST(Matching, RowsOfAGroundTermAreFoundWithoutLookingAtTheOthers) {
  constexpr int kRows = 500;
  std::string program = "(datatype S (C i64)) (relation op (S i64)) (relation out (i64))"
                        "(rule ((op (C 7) n)) ((out n))) (op (C 7) 0) (run 1) ";
  for (int i = 0; i < kRows; ++i)
    program += fmt::format("(op (C {}) {})", 100 + i, i);
  Session session;
  session.run(program + "(op (C 7) 1)");
  Engine& engine = session.interpreter.engine;
  Forest forest = plan_rules(engine, {0}, Evaluation::SemiNaive, engine.rules[0].seen);
  MatchOptions options;
  options.seen = engine.rules[0].seen;
  Matcher matcher(engine, forest, options);
  EXPECT_EQ(matcher.run()[0].count, 1u);
  EXPECT_LT(steps_of(matcher), 10.0);
}

TEST(Matching, ManyRowsThatAreJoinedWithFewAreLookedUpFromThese) {
  // Eight rules ask of every new row whether it is of their kind; there are few rows of a kind.
  constexpr int kKinds = 8, kRows = 3000;
  std::string program = "(relation op (i64 i64)) (op -1 -1)";
  for (int k = 0; k < kKinds; ++k)
    program += fmt::format("(relation kind{0} (i64)) (relation out{0} (i64)) (kind{0} {0})"
                           "(kind{0} {1}) (rule ((op k n) (kind{0} k)) ((out{0} n)))",
                           k, k + 100);
  Session session;
  session.run(program + "(run 1)");
  Engine& engine = session.interpreter.engine;
  std::string rows;
  for (int i = 0; i < kRows; ++i)
    rows += fmt::format("(op {} {})", i < kKinds ? i : 1000 + i, i);
  session.run(rows + "(op 101 7) (kind2 1010)");
  Forest forest =
      plan_rules(engine, all_rules(engine), Evaluation::SemiNaive, engine.rules[0].seen);
  MatchOptions options;
  options.seen = engine.rules[0].seen;
  Matcher matcher(engine, forest, options);
  std::vector<Matches> found = matcher.run();
  for (int k = 0; k < kKinds; ++k)
    EXPECT_EQ(found[static_cast<std::size_t>(k)].count, k == 1 || k == 2 ? 2u : 1u) << k;
  EXPECT_LT(steps_of(matcher), 200.0);
  session.run("(run 1)");
  EXPECT_EQ(session.size("out1"), 2u); // 1 and 7
  EXPECT_EQ(session.size("out2"), 2u); // 2 and 10
}

TEST(Matching, OnlyTablesWithNewRowsGetPlans) {
  Session session;
  session.run("(relation A (i64)) (relation B (i64)) (relation Out (i64))"
              "(rule ((A x) (B x)) ((Out x))) (A 1) (B 1) (A 2) (B 3) (run 1) (A 3)");
  Engine& engine = session.interpreter.engine;
  const std::uint32_t seen = engine.rules[0].seen;
  Forest forest = plan_rules(engine, {0}, Evaluation::SemiNaive, seen);
  EXPECT_EQ(forest.nodes.size(), 2u); // from A alone
  plan_news(engine, forest, seen);
  EXPECT_EQ(forest.nodes.size(), 2u);
  session.run("(B 2)");
  plan_news(engine, forest, seen);
  EXPECT_EQ(forest.nodes.size(), 4u);
  MatchOptions options;
  options.seen = seen;
  EXPECT_EQ(Matcher(engine, forest, options).run()[0].count, 2u);
}

TEST(Matching, ARuleSetThatDivergesNamesTheRulesThatGrew) {
  EGraph g;
  g.run_program(R"((datatype E (Zero) (S E) (T E))
    (rewrite (S x) (S (S x)) :name "harmless") (rule ((= e (T x))) ((T e)) :name "diverges") (T (Zero)))");
  RunReport report = g.run(g.ruleset(""), 1000000, {.rows = 500});
  EXPECT_EQ(report.stop, StopReason::Rows);
  ASSERT_FALSE(report.rules.empty());
  EXPECT_EQ(report.rules[0].name, "diverges");
  EXPECT_GT(report.rules[0].rows_added, 400u);
  EXPECT_GT(report.match_steps, 0u);
}

} // namespace
} // namespace egret::egraph
