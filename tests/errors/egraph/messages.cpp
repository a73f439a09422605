// Programs that must be rejected: the place and the message.
#include "egret/egraph.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>

namespace egret::egraph {
namespace {

struct Case {
  const char* program;
  std::uint32_t line;
  std::uint32_t column;
  const char* message;
};

class Rejected : public ::testing::TestWithParam<Case> {};

TEST_P(Rejected, AtItsPlaceWithAMessage) {
  const Case& c = GetParam();
  try {
    EGraph().run_program(c.program);
    FAIL() << "was accepted: " << c.program;
  } catch (const SourceError& error) {
    std::string what = error.what();
    EXPECT_EQ(error.line(), c.line) << what;
    EXPECT_EQ(error.column(), c.column) << what;
    EXPECT_NE(what.find(c.message), std::string::npos) << what;
    EXPECT_NE(what.find('^'), std::string::npos) << what; // the source line is shown
  }
}

// A value that a program doubles again and again ends in a message before it takes all memory.
TEST(Rejected, ValuesThatGrowWithoutEnd) {
  auto doubled = [](const std::string& declare, const std::string& start,
                    const std::string& twice) {
    std::string program = declare + "(let $v0 " + start + ")\n";
    for (int i = 0; i < 60; ++i)
      program += fmt::format("(let $v{} ({} $v{} $v{}))\n", i + 1, twice, i, i);
    return program;
  };
  const std::string programs[] = {
      doubled("", "\"aaaaaaaa\"", "+"),
      doubled("", "(bigint 1000)", "*"),
      doubled("", "(bigrat (bigint 1000) (bigint 7))", "*"),
      doubled("(sort V (Vec i64))", "(vec-of 1 2)", "vec-append"),
      doubled("(sort M (MultiSet i64))", "(multiset-of 1 2)", "multiset-sum"),
      "(let $x (<< (bigint 1) 10000000))",
      "(let $x (pow (bigrat (bigint 3) (bigint 1)) (bigrat (bigint 10000000) (bigint 1))))",
  };
  for (const std::string& program : programs)
    try {
      EGraph().run_program(program);
      ADD_FAILURE() << "was accepted: " << program.substr(0, 100);
    } catch (const SourceError& error) {
      const std::string_view what = error.what();
      EXPECT_NE(what.find("primitive failed"), std::string_view::npos) << what;
      EXPECT_LT(what.size(), 2000U); // values of megabytes are not shown whole
    }
}

#define MATH "(datatype Math (Num i64) (Add Math Math))\n(function f (i64) i64 :no-merge)\n"

INSTANTIATE_TEST_SUITE_P(
    Programs, Rejected,
    ::testing::Values(
        Case{"(datatype Math", 1, 1, "not closed"}, Case{"(run 1))", 1, 8, "closes nothing"},
        Case{"(let $x \"abc", 1, 9, "not closed"},
        Case{"(let $x \"\\q\")", 1, 10, "unknown escape"},
        Case{MATH "(Add (Num 1))", 3, 1, "Add takes 2 arguments, found 1"},
        Case{MATH "(Add (Num 1) 2)", 3, 14, "argument 2 of Add: expected Math, found i64"},
        Case{MATH "(Ad (Num 1) (Num 2))", 3, 2, "unknown function Ad (did you mean Add?)"},
        Case{MATH "(rewrite (Add a b) (Add b c))", 3, 27, "unbound variable c"},
        Case{MATH "(rule ((> x 1)) ((Num x)))", 3, 11, "x is not bound"},
        Case{MATH "(rule ((= x (f y)) (Num z)) ((Num (f 1))))", 3, 35,
             "cannot be read in an action"},
        Case{MATH "(set (Num 1) (Num 2))", 3, 6, "only functions can be set"},
        Case{MATH "(set (f 1) \"a\")", 3, 12, "value of f: expected i64, found String"},
        Case{MATH "(union 1 2)", 3, 1, "expected an equality sort, found i64"},
        Case{MATH "(union (Num 1) 2)", 3, 1, "different sorts: Math and i64"},
        Case{MATH "(check (= (Num 1) (Num 2)))", 3, 1, "Check failed"},
        Case{MATH "(fail (check (= 1 1)))", 3, 1, "should have failed"},
        Case{MATH "(rule ((= x (Num a))) ((let a (Num 1))))", 3, 29, "already bound"},
        Case{MATH "(rewrite (Add a b) (Add b a) :ruleset none)", 3, 39, "unknown ruleset none"},
        Case{MATH "(sort Math)", 3, 7, "already declared"},
        Case{MATH "(pop)", 3, 1, "nothing was pushed"},
        Case{MATH "(extract (Num 1) -1)", 3, 18, "negative"},
        Case{MATH "(prove (Num 1))", 3, 2, "prove is not supported"},
        Case{MATH "(+ 1 \"a\")", 3, 1, "found (+ i64 String)"},
        Case{"(sort V (Vek i64))", 1, 10, "unknown kind of sort"},
        Case{"(function g (i64) i64)", 1, 1, "needs :merge or :no-merge"},
        Case{"(function g (i64) i64 :merge old :no-merge)", 1, 34, "exclude each other"},
        Case{"(constructor g (i64) i64)", 1, 22, "expected an equality sort"},
        Case{"(relation r (i64))\n(rule ((r x)) ((panic \"stop\")))\n(r 1)\n(run 1)", 2, 16,
             "Panic: stop"},
        Case{MATH "(let $Add 3)", 3, 6, "$Add shadows the declaration of Add"},
        Case{MATH "(rule ((Num x)) ((let a (f x))) :naive :unsafe-seminaive)", 3, 40,
             "exclude each other"},
        Case{MATH "(rule ((Num 1)) ((let z (Num 2)) (let z (Num 2))))", 3, 39, "already bound"},
        Case{"(rule ((= 1 (+ x x))) ())", 1, 16, "x is not bound"},
        Case{MATH "(let $a (/ 1 0))", 3, 9, "primitive failed: (/ 1 0)"},
        Case{MATH "(let $a (f 1))", 3, 9, "(f 1) has no value"},
        Case{MATH "(run-schedule (loop (run)))", 3, 15, "expected a schedule"},
        Case{"(sort S (Either i64))", 1, 9, "Either takes 2 sorts, found 1"},
        Case{"(sort S :nounion)", 1, 9, "expected a container sort"},
        Case{MATH "(let $a (Num 1))\n(rule ((Num 1)) ((let a (Num 1))))", 4, 23,
             "a shadows the global $a, which is declared at "},
        Case{MATH "(let $a (Num 1))\n(rewrite (Add a b) b)", 4, 15, "shadows the global $a"},
        Case{MATH "(let $a 1)\n(let $a 2)", 4, 6, "$a is already declared at "},
        Case{"(sort V (Vec String)) (relation r (V))\n (rule\n ((r (vec-of \"a\" b)))\n ())", 2, 2,
             "b is not bound: no function or relation in the query gives it a value (it is used "
             "at "},
        Case{MATH "(rewrite (Add a b)\n         a\n  :when ((> c 1)))", 3, 1,
             "c is not bound: no function or relation in the query gives it a value (it is used "
             "at "},
        Case{MATH "(check\n (> d 1))", 3, 1, "d is not bound"},
        Case{MATH "(sort F (UnstableFn (i64) i64))\n(unstable-fn \"Num\")", 4, 1,
             "expected a function of F (i64) -> i64, found Num (i64) -> Math with 0 bound "
             "arguments"},
        Case{MATH
             "(sort F (UnstableFn (Math) Math))\n(unstable-app (unstable-fn \"Add\" 1) (Num 1))",
             4, 15, "expected F with Math, found ? with i64"},
        Case{MATH "(sort F (UnstableFn (Math) Math))\n(unstable-app (unstable-fn \"Ad\") (Num 1))",
             4, 28, "unknown function Ad (did you mean Add?)"},
        Case{MATH "(sort F (UnstableFn () i64))\n(unstable-fn \"+\")", 4, 1,
             "found + with 0 bound"},
        Case{MATH "(extract (Num 1) :extractor ilp)", 3, 29,
             "unknown extractor: expected greedy-dag"},
        Case{MATH "(include \"no/such/file.egg\")", 3, 10, "no/such/file.egg: cannot be read"},
        Case{MATH "(input f \"no/such.csv\")", 3, 10, "no/such.csv: cannot be read"},
        Case{MATH "(input Add \"x.csv\")", 3, 8, "cannot be read from a file"},
        Case{MATH "(set (+ 1 2) 3)", 3, 7, "+ is not a function"},
        Case{MATH "(subsume (f 1))", 3, 10, "f is a function"},
        Case{MATH "(union (f 1) (f 2))", 3, 1, "expected an equality sort, found i64"},
        Case{"(relation e (i64))\n(union (e 1) (e 2))", 2, 1, "expected an equality sort"},
        Case{"(relation e (i64))\n(set (e 1) (e 2))", 2, 6, "only functions can be set"},
        Case{MATH "(rule ((Num x)) ((extract x)))", 3, 18, "extract is a command"},
        Case{MATH "(constructor K () Math :term)", 3, 24,
             "expected :cost number or :unextractable"},
        Case{MATH "(with-ruleset r (run 1))", 3, 2, "unknown command with-ruleset"},
        Case{"(datatyp M (N i64))", 1, 2, "unknown command datatyp (did you mean datatype?)"},
        Case{MATH "(rewrit (Add x y) (Add y x))", 3, 2,
             "unknown command rewrit (did you mean rewrite?)"},
        Case{MATH "(chekc (= 1 1))", 3, 2, "unknown command chekc (did you mean check?)"},
        Case{MATH "(unoin (Num 1) (Num 2))", 3, 2, "unknown command unoin (did you mean union?)"},
        Case{"(datatype M (N i64))\n(z 1)", 2, 2, "unknown command z\n"},
        Case{MATH "(Num 99999999999999999999)", 3, 6, "99999999999999999999 does not fit i64"},
        Case{MATH "(rule (= e (Add x y)) ((Num 1)))", 3, 7,
             "expected a list of facts: each has parentheses of its own, as in ((= a b))"},
        Case{MATH "(rule ((= e (Add x y))) (union x y))", 3, 25,
             "expected a list of actions: each has parentheses of its own"},
        Case{MATH "(vec-of 1 2)", 3, 2,
             "unknown function vec-of (it takes a sort of containers: declare one first, such as "
             "(sort V (Vec i64)))"},
        Case{"(sort V (Vec String))\n(relation r (V))\n(r (map-empty))", 3, 5,
             "(sort M (Map i64 i64))"},
        Case{"(sort Expr)\n(datatype Expr (A))", 2, 11, "Expr is already declared at program:1:1"},
        Case{MATH "(check (= (Num 1) (Num 1)))\n(Num 1) (Num 2)", 3, 1,
             "(= (Num 1) (Num 1)) does not hold: its sides are absent and absent"},
        Case{MATH "(Num 1) (Num 2)\n(check (= 1 1) (= (Num 1) (Num 2)))", 4, 1,
             "(= (Num 1) (Num 2)) does not hold: its sides are (Num 1) and (Num 2)"},
        Case{MATH "(Num 1) (Num 2)\n(check (= x (Num 1)) (= x (Num 2)))", 4, 1,
             "each fact holds, but no match fits all of them"},
        Case{MATH "(set (f 1) 5) (check (= (f 1) 6))", 3, 15, "its sides are 5 and 6"},
        Case{"(relation r (String))\n(r \"\u00e4\u00f6\") (q \"\u00fc\")", 2, 11,
             "unknown command q\n    2 | (r \"\u00e4\u00f6\") (q \"\u00fc\")\n      |           ^"},
        Case{"(relation r (String))\n\t(r\t1)", 2, 5, "    2 | \t(r\t1)\n      | \t  \t^"},
        Case{"(relation r (i64)) (relation q (i64))\n(check (= (r 1) (q 1)))", 2, 8,
             "different sorts"},
        Case{"(relation r (i64)) (let $fact (r 1))\n(check (= $fact (r 2)))", 2, 11, "is a fact"},
        Case{"(relation r (i64))\n(check (!= (r 1) (r 2)))", 2, 8, "compared by = in a query"},
        Case{MATH "(prove-exists Num)", 3, 2, "prove-exists is not supported"},
        Case{MATH "(unstable-combined-ruleset a b)", 3, 30, "unknown ruleset b"},
        Case{MATH "(pop 2)", 3, 1, "nothing was pushed"},
        Case{MATH "(print-size Nim)", 3, 13, "unknown function (did you mean Num?)"}));

TEST(Budgets, ADivergingRunStopsAndNamesTheRulesThatGrew) {
  EGraph g;
  g.run_program("(datatype N (Z) (S N)) (rule ((= e (S n))) ((S e)) :name \"grow\") (rule ((= e "
                "(Z))) ((S e)) :name \"start\") (Z)");
  RunReport report = g.run(Plan::saturate({Plan::run(g.ruleset(""))}), {.rows = 500});
  EXPECT_EQ(report.stop, StopReason::Rows);
  ASSERT_FALSE(report.rules.empty());
  EXPECT_EQ(report.rules[0].name, "grow");
  EXPECT_GT(report.rules[0].rows_added, 400u);
  EXPECT_EQ(g.run(g.ruleset(""), 1000000, {.iterations = 7}).stop, StopReason::Iterations);
  EXPECT_EQ(g.run(g.ruleset(""), 1000000000, {.seconds = 0.05}).stop, StopReason::Time);
}

TEST(Depth, AHundredThousandLevelsOverflowNothing) {
  constexpr int kLevels = 100000;
  std::string term;
  for (int i = 0; i < kLevels; ++i)
    term += "(S ";
  term += "(Z)" + std::string(kLevels, ')');
  EGraph g;
  g.run_program("(datatype N (Z) (S N))");
  g.run_program("(let $deep " + term + ")");
  EXPECT_EQ(g.size(g.function("S")), static_cast<std::size_t>(kLevels));
  g.run_program("(check (= $deep " + term + "))");
  g.run_program("(rule ((= x " + term + ")) ((Z)))(run 1)");
  std::string out = g.run_program("(extract $deep)");
  EXPECT_GT(out.size(), static_cast<std::size_t>(kLevels));
  g.run_program("(union (Z) (S (Z)))"); // the whole chain falls into one class
  EXPECT_EQ(g.size(g.function("S")), 1u);
  EXPECT_EQ(g.run_program("(extract $deep)"), "(Z)\n");
}

} // namespace
} // namespace egret::egraph
