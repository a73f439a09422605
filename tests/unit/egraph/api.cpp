// The C++ interface.
#include "egret/egraph.h"

#include <gtest/gtest.h>

#include <map>

namespace egret::egraph {
namespace {

struct Arithmetic {
  EGraph g;
  SortId expr = g.declare_sort("Expr"), i64 = g.sort("i64");
  FunctionId num = g.declare_constructor("Num", {i64}, expr);
  FunctionId add = g.declare_constructor("Add", {expr, expr}, expr);
  FunctionId value = g.declare_function("value", {expr}, i64, Merge::none());
};

TEST(Api, RulesBuiltFromCppFoldConstants) {
  Arithmetic a;
  RuleBuilder fold(a.g);
  auto e = fold.var("e", a.expr), x = fold.var("x", a.i64), y = fold.var("y", a.i64);
  fold.where_equal(e, fold.call(a.add, {fold.call(a.num, {x}), fold.call(a.num, {y})}));
  fold.then_union(e, fold.call(a.num, {fold.primitive("+", {x, y})}));
  a.g.add_rule(std::move(fold), {.name = "fold"});
  Value two = a.g.add(a.num, {a.g.i64(2)}), three = a.g.add(a.num, {a.g.i64(3)});
  Value sum = a.g.add(a.add, {two, three});
  RunReport report = a.g.run(a.g.ruleset(""), 10);
  EXPECT_TRUE(report.updated);
  EXPECT_EQ(report.rules.at(0).name, "fold");
  EXPECT_TRUE(a.g.equal(a.expr, sum, *a.g.lookup(a.num, {a.g.i64(5)})));
  EXPECT_EQ(a.g.show(a.g.extract({a.expr, sum})), "(Num 5)");
}

TEST(Api, AJournalTellsWhatRulesMadeAndJoined) {
  Arithmetic a;
  const auto rule = [&](const char* name, auto build) {
    RuleBuilder builder(a.g);
    auto e = builder.var("e", a.expr), x = builder.var("x", a.expr), y = builder.var("y", a.expr);
    builder.where_equal(e, builder.call(a.add, {x, y}));
    build(builder, e, x, y);
    a.g.add_rule(std::move(builder), {.name = name});
  };
  rule("swap", [&](RuleBuilder& r, auto e, auto x, auto y) {
    r.then_union(e, r.call(a.add, {y, x}));
  });
  const Value two = a.g.add(a.num, {a.g.i64(2)}), three = a.g.add(a.num, {a.g.i64(3)});
  const Value sum = a.g.add(a.add, {two, three}), other = a.g.add(a.add, {sum, two});
  EXPECT_TRUE(a.g.journal().made.empty());
  a.g.keep_journal();
  a.g.run(a.g.ruleset(""), 10);
  const Journal& journal = a.g.journal();
  ASSERT_EQ(journal.made.size(), 2u); // what was there before is no entry
  for (const Journal::Made& made : journal.made) {
    EXPECT_EQ(made.function, a.add);
    EXPECT_EQ(a.g.name(made.rule), "swap");
    ASSERT_TRUE(a.g.lookup(made.function, made.args));
    EXPECT_TRUE(a.g.equal(a.expr, *a.g.lookup(made.function, made.args), made.output));
  }
  EXPECT_TRUE(a.g.equal(a.expr, journal.made[0].output, sum));
  EXPECT_TRUE(a.g.equal(a.expr, journal.made[1].output, other));

  // A rule that joins operands: the classes above them follow, which no rule did.
  rule("collapse", [&](RuleBuilder& r, auto, auto x, auto y) { r.then_union(x, y); });
  a.g.run(a.g.ruleset(""), 10);
  bool by_rule = false;
  std::map<Value, Value> joined;
  for (const Journal::Joined& join : a.g.journal().joined) {
    by_rule = by_rule || join.rule;
    EXPECT_LT(join.kept, join.lost);
    EXPECT_TRUE(a.g.equal(a.expr, join.kept, join.lost));
    EXPECT_TRUE(joined.emplace(join.lost, join.kept).second) << "it was joined twice";
  }
  EXPECT_TRUE(by_rule);
  const auto end = [&](Value id) {
    while (joined.contains(id))
      id = joined[id];
    return id;
  };
  for (const Value id : {two, three, sum, other})
    EXPECT_EQ(end(id), a.g.canonical(a.expr, id));
}

TEST(Api, AJournalTellsJoinsOfEqualNodes) {
  EGraph g;
  g.run_program("(datatype E (A) (B) (F E)) (relation go ()) (rule ((go)) ((union (A) (B))) :name "
                "\"join\") (F (A)) (F (B)) (go)");
  g.keep_journal();
  g.run(g.ruleset(""), 3);
  const std::vector<Journal::Joined>& joined = g.journal().joined;
  ASSERT_EQ(joined.size(), 2u);
  ASSERT_TRUE(joined[0].rule);
  EXPECT_EQ(g.name(*joined[0].rule), "join");
  EXPECT_FALSE(joined[1].rule); // (F (A)) and (F (B))
  EXPECT_TRUE(g.journal().made.empty());
}

TEST(Api, ACloneGoesItsOwnWay) {
  Arithmetic a;
  Value one = a.g.add(a.num, {a.g.i64(1)}), two = a.g.add(a.num, {a.g.i64(2)});
  EGraph copy = a.g.clone();
  copy.unite(one, two);
  copy.rebuild();
  EXPECT_TRUE(copy.equal(a.expr, one, two));
  EXPECT_FALSE(a.g.equal(a.expr, one, two));
  EXPECT_EQ(a.g.size(a.num), 2u);
}

TEST(Api, AnalysesMergeByACppFunctionAndConflictsNameBothFacts) {
  EGraph g;
  SortId expr = g.declare_sort("Expr"), i64 = g.sort("i64");
  FunctionId num = g.declare_constructor("Num", {i64}, expr);
  FunctionId best = g.declare_function("best", {expr}, i64,
                                       Merge::function([](PrimitiveCall& c, Value x, Value y) {
                                         return c.from_i64(std::max(c.to_i64(x), c.to_i64(y)));
                                       }));
  FunctionId fixed = g.declare_function("fixed", {expr}, i64, Merge::none());
  Value a = g.add(num, {g.i64(1)}), b = g.add(num, {g.i64(2)});
  g.set(best, {a}, g.i64(10));
  g.set(best, {b}, g.i64(20));
  g.set(fixed, {a}, g.i64(1));
  g.set(fixed, {b}, g.i64(2));
  g.unite(a, b);
  try {
    g.rebuild();
    FAIL();
  } catch (const Error& error) {
    std::string what = error.what();
    EXPECT_NE(what.find("fixed"), std::string::npos) << what;
    EXPECT_NE(what.find("= 1 and 2"), std::string::npos) << what;
  }
  EXPECT_EQ(g.to_i64(*g.lookup(best, {a})), 20);
}

TEST(Api, UserPrimitivesMayFail) {
  EGraph g;
  SortId i64 = g.sort("i64");
  g.declare_primitive("half", {i64}, i64,
                      [](PrimitiveCall& c, std::span<const Value> args) -> std::optional<Value> {
                        std::int64_t x = c.to_i64(args[0]);
                        return x % 2 == 0 ? std::optional(c.from_i64(x / 2)) : std::nullopt;
                      });
  g.run_program("(relation n (i64)) (rule ((n x) (= y (half x))) ((n y))) (n 48) (run 100)");
  EXPECT_EQ(g.size(g.function("n")), 5u); // 48 24 12 6 3
}

TEST(Api, DagCostPaysSharedClassesOnce) {
  EGraph g;
  g.run_program(R"((datatype E (A) (B) (Big :cost 10) (Pair E E) (One E :cost 14))
    (let $big (Big)) (let $root (Pair $big $big)) (union $root (One (A))))");
  Root root{g.sort("E"), *g.lookup(g.function("$root"), {})};
  EXPECT_EQ(g.show(g.extract(root, {.kind = CostKind::Tree})), "(One (A))"); // 15 against 21
  TermGraph dag = g.extract(root);
  EXPECT_EQ(g.show(dag), "(Pair (Big) (Big))"); // 11 against 15
  EXPECT_EQ(dag.cost, 11);
  auto both = g.extract_best(std::span(&root, 1), {.count = 5});
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[1].cost, 15);
}

TEST(Api, BackOffPostponesRulesThatMatchTooMuchAndStillSaturates) {
  const char* program = R"((datatype E (V i64) (Add E E))
    (rewrite (Add a b) (Add b a) :name "comm") (rewrite (Add a (Add b c)) (Add (Add a b) c) :name "assoc")
    (Add (V 1) (Add (V 2) (Add (V 3) (Add (V 4) (V 5))))))";
  EGraph plain, held;
  plain.run_program(program);
  held.run_program(program);
  plain.run(Plan::saturate({Plan::run(plain.ruleset(""))}));
  RunReport report = held.run(Plan::saturate({Plan::run(held.ruleset(""), 1, BackOff{8, 2})}));
  EXPECT_EQ(plain.size(), held.size());
  std::uint32_t banned = 0;
  for (const RuleReport& rule : report.rules)
    banned += rule.times_banned;
  EXPECT_GT(banned, 0u);
}

TEST(Api, SharedTermsPrintWithLet) {
  EGraph g;
  std::string program = "(datatype E (X) (P E E)) (let $a0 (X))";
  for (int i = 0; i < 60; ++i)
    program += " (let $a" + std::to_string(i + 1) + " (P $a" + std::to_string(i) + " $a" +
               std::to_string(i) + "))";
  std::string out = g.run_program(program + " (extract $a60)"); // 2^61 nodes as a tree
  EXPECT_LT(out.size(), 3000u);
  EXPECT_NE(out.find("(let s1 (P (X) (X)))"), std::string::npos) << out.substr(0, 200);
}

TEST(Api, WrongCallsAreErrors) {
  Arithmetic a;
  EXPECT_THROW(a.g.add(a.num, {}), Error);
  EXPECT_THROW(a.g.add(a.value, {0}), Error);
  EXPECT_THROW(a.g.set(a.num, {a.g.i64(1)}, 0), Error);
  EXPECT_THROW(a.g.sort("None"), Error);
  EXPECT_THROW(a.g.declare_sort("Expr"), Error);
  EXPECT_THROW(a.g.unite(123456, 0), Error);
}

} // namespace
} // namespace egret::egraph
