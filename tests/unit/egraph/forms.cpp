// Every form of the language, with the sizes of the tables after each run.
#include "programs.h"

#include "support/files.h"

namespace egret::egraph::test {
namespace {

TEST(Forms, BirewriteGoesBothWaysAndWhenGuards) {
  Session s;
  s.run(R"((datatype M (Num i64) (Neg M) (Sub M M)) (constructor Zero () M)
    (birewrite (Neg x) (Sub (Zero) x))
    (rewrite (Sub x y) (Zero) :when ((= x y)))
    (Neg (Num 1)) (Sub (Zero) (Num 2)) (Sub (Num 3) (Num 3)) (Zero))");
  s.run("(run 1)");
  EXPECT_EQ(s.size("Neg"), 2u);
  EXPECT_EQ(s.size("Sub"), 3u);
  s.run("(check (= (Neg (Num 2)) (Sub (Zero) (Num 2))) (= (Zero) (Sub (Num 3) (Num 3))))");
  EXPECT_EQ(error_of("(datatype M (A) (B)) (birewrite (A) (B) :subsume)").empty(), false);
}

TEST(Forms, DatatypesMayReferToEachOtherAndToContainersOfThemselves) {
  Session s;
  s.run(
      R"((datatype* (Tree (Leaf i64) (Node Forest :cost 3)) (sort Forest (Vec Tree)) (Tag (Name String) (Of Tree :unextractable)))
    (let $t (Node (vec-of (Leaf 1) (Node (vec-empty)))))
    (Of $t))");
  EXPECT_EQ(s.size("Node"), 2u);
  EXPECT_EQ(s.size("Leaf"), 1u);
  EXPECT_EQ(s.run("(extract $t)"), "(Node (vec-of (Leaf 1) (Node (vec-empty))))\n");
  EXPECT_THROW(s.run("(extract (Of $t))"), Error);
}

TEST(Forms, SchedulesNestAndCountSteps) {
  Session s;
  s.run(R"((relation left (i64)) (relation right (i64)) (ruleset l) (ruleset r)
    (rule ((left x) (right x)) ((left (+ x 1))) :ruleset l)
    (rule ((left x) (right y) (= x (+ y 1))) ((right x)) :ruleset r)
    (left 0) (right 0)
    (run-schedule (repeat 10 (saturate r) (saturate l))))");
  EXPECT_EQ(s.size("left"), 11u);
  EXPECT_EQ(s.size("right"), 10u);
  s.run("(run-schedule (seq (run r) l) (run l 0 :until (left 99)))");
  EXPECT_EQ(s.size("right"), 11u);
  EXPECT_EQ(s.size("left"), 12u);
  s.run("(run-schedule (saturate (run r :until (right 3)) (run l :until (left 5))))");
  EXPECT_EQ(s.size("right"), 11u);
  EXPECT_EQ(s.size("left"), 12u);
}

TEST(Forms, ACombinedRulesetMatchesOneSnapshotAndSeesLaterRules) {
  Session s;
  s.run(R"((relation n (i64)) (relation seen (i64)) (ruleset a) (ruleset b)
    (rule ((n x) (< x 3)) ((n (+ x 1))) :ruleset a)
    (unstable-combined-ruleset both a b)
    (rule ((n x)) ((seen x)) :ruleset b)
    (n 0) (run both 1))");
  EXPECT_EQ(s.size("n"), 2u);
  EXPECT_EQ(s.size("seen"), 1u); // not the row that the other rule added in the same step
  s.run("(run both 100)");
  EXPECT_EQ(s.size("n"), 4u);
  EXPECT_EQ(s.size("seen"), 4u);
  EXPECT_THROW(s.run("(rule ((n x)) () :ruleset both)"), Error);
}

TEST(Forms, NaiveAndUnsafeRulesReadFunctionsInActions) {
  for (const char* option : {":naive", ":unsafe-seminaive"}) {
    Session s;
    s.run(
        std::string(
            R"((function f (i64) i64 :merge (max old new)) (function g (i64) i64 :merge (max old new))
      (relation go (i64)) (set (f 1) 10) (set (f 2) 20) (go 1) (go 2)
      (rule ((go x)) ((set (g x) (f x))) )") +
        option + ")(run 1)");
    EXPECT_EQ(s.size("g"), 2u) << option;
    s.run("(check (= (g 2) 20))");
  }
}

TEST(Forms, MergeMayBuildTermsAndRunsWhenClassesAreJoined) {
  Session s;
  s.run(
      R"((datatype T (L i64) (Both T T)) (function best (T) T :merge (Both old new)) (function low (T) i64 :merge (min old new))
    (set (best (L 0)) (L 1)) (set (best (L 0)) (L 1)))");
  EXPECT_EQ(s.size("Both"), 0u);
  s.run("(set (best (L 0)) (L 2))");
  EXPECT_EQ(s.size("Both"), 1u);
  s.run("(set (low (L 5)) 4) (set (low (L 6)) 3) (union (L 5) (L 6)) (check (= (low (L 5)) 3))");
  EXPECT_EQ(s.size("low"), 1u);
}

TEST(Forms, RulesThatMakeTheSameNewTermInOneIterationHaveNothingToMerge) {
  Session s;
  s.run(
      R"((datatype T (L i64) (Both T T)) (function best (i64) T :merge (Both old new)) (relation r (i64)) (relation q (i64))
    (rule ((r x)) ((set (best x) (L 1)))) (rule ((q x)) ((set (best x) (L 1))))
    (rule ((r x) (q x)) ((set (best x) (L x))))
    (r 1) (q 1) (run 1))");
  EXPECT_EQ(s.size("best"), 1u);
  EXPECT_EQ(s.size("Both"), 0u);
}

TEST(Forms, DeletedAndSubsumedRowsInRules) {
  Session s;
  s.run(R"((datatype M (A i64) (B i64)) (relation r (i64))
    (rule ((= e (A x))) ((union e (B x)) (delete (A x))))
    (rule ((= e (B x)) (> x 5)) ((subsume (B x))))
    (rule ((= e (B x))) ((r x)))
    (A 1) (A 7) (run 1))");
  EXPECT_EQ(s.size("A"), 0u);
  EXPECT_EQ(s.size("B"), 2u);
  s.run("(run 1)");
  EXPECT_EQ(s.size("r"), 2u);
  EXPECT_EQ(s.size("B"), 2u); // subsumed rows are counted
  s.run("(check (B 7)) (relation again (i64)) (rule ((= e (B x))) ((again x))) (run 1)");
  EXPECT_EQ(s.size("again"), 1u);
}

TEST(Forms, ExtractionsInARowSeeWhatChangesBetweenThem) {
  Session s;
  s.run("(datatype M (N i64) (Add M M) (Big M :cost 50)) (let $a (Add (N 1) (N 2))) (let $b (Big "
        "$a))");
  EXPECT_EQ(s.run("(extract $b) (extract $a) (extract (N 7)) (extract $b)"),
            "(Big (Add (N 1) (N 2)))\n(Add (N 1) (N 2))\n(N 7)\n(Big (Add (N 1) (N 2)))\n");
  EXPECT_EQ(s.run("(extract $b) (union $b (N 3)) (extract $b)"),
            "(Big (Add (N 1) (N 2)))\n(N 3)\n");
  EXPECT_EQ(s.run("(push) (union $a (N 4)) (extract $a) (pop) (extract $a)"),
            "(N 4)\n(Add (N 1) (N 2))\n");
  EXPECT_EQ(s.run("(extract $b) (subsume (N 3)) (extract $b 3)"),
            "(N 3)\n(\n   (Big (Add (N 1) (N 2)))\n)\n");
}

TEST(Forms, InternalOptionsHideTablesAndShowSubsumedRows) {
  Session s;
  s.run(R"((datatype M (N i64)) (relation live (M)) (relation any (M))
    (function f (M) i64 :merge old :internal-hidden) (constructor K () M :internal-let)
    (N 1) (N 2) (subsume (N 1)) (set (f (K)) 3)
    (rule ((= x (N _))) ((live x)))
    (rule ((= x (N _))) ((any x)) :internal-include-subsumed)
    (run 1) (check (= (f (K)) 3)))");
  EXPECT_EQ(s.run("(print-size)"), "((N 2)\n (any 2)\n (live 1))\n");
}

TEST(Forms, NamesMayHoldQuotesAndValuesAreCompared) {
  Session s;
  s.run(
      R"((let f"2 1) (check (= f"2 1)) (check (value-eq f"2 1)) (fail (check (value-eq f"2 2))))");
}

TEST(Forms, FailKeepsWhatTheCommandDidBeforeItFailed) {
  Session s;
  s.run(R"((datatype M (A) (B) (C)) (function f () M :no-merge)
    (set (f) (A)) (union (A) (B)) (set (f) (B)) (fail (set (f) (C))) (check (= (f) (A)))
    (fail (check (= (A) (C)))) (fail (check (B) (= (C) (A)))))");
  EXPECT_EQ(s.size("C"), 1u);
  EXPECT_EQ(s.size("f"), 1u);
}

TEST(Forms, PrintsAndExtractsInTheSharedFormat) {
  Session s;
  s.run(
      R"((datatype M (Num i64) (Add M M :cost 5)) (relation r (i64 String)) (function f (M) i64 :no-merge)
    (union (Num 3) (Add (Num 1) (Num 2))) (r 1 "a\n") (set (f (Num 3)) 7))");
  EXPECT_EQ(s.run("(print-size)"), "((Add 1)\n (Num 3)\n (f 1)\n (r 1))\n");
  EXPECT_EQ(s.run("(print-size Num)"), "3\n");
  EXPECT_EQ(s.run("(print-function f 10)"), "(\n   (f (Num 3)) -> 7\n)\n");
  EXPECT_EQ(s.run("(print-function r :mode csv)"), "r,1,\"a\\n\"\n\n");
  EXPECT_EQ(s.run("(extract (Num 3))"), "(Num 3)\n");
  EXPECT_EQ(s.run("(extract (Num 3) 5)"), "(\n   (Num 3)\n   (Add (Num 1) (Num 2))\n)\n");
  EXPECT_EQ(s.run("(extract (Add (Num 1) (Num 2)) :extractor greedy-dag)"), "(Num 3)\n");
  EXPECT_EQ(s.run("(extract (+ 1.5 2.0))"), "3.5\n");
  EXPECT_NE(s.run("(print-stats)"), "");
}

TEST(Forms, IncludeInputAndOutput) {
  egret::test::TempFolder folder;
  auto path = [&](const char* name) { return (folder / name).string(); };
  egret::test::write_file(folder / "defs.egg", "(relation edge (i64 i64)) (function name (i64) "
                                               "String :no-merge) (datatype M (Num i64))");
  egret::test::write_file(folder / "edges.csv", "1\t2\n\n 2 \t 3\n");
  egret::test::write_file(folder / "names.csv", "1\tone two\n2\tb\n");
  egret::test::write_file(folder / "bad.csv", "1\tx\n");
  Session s;
  s.interpreter.fact_directory = path("");
  s.run("(include \"" + path("defs.egg") +
        "\") (input edge \"edges.csv\") (input name \"names.csv\")");
  EXPECT_EQ(s.size("edge"), 2u);
  s.run("(check (edge 2 3) (= (name 1) \"one two\"))");
  s.run("(output \"out.txt\" (Num 1) (Num 2))");
  EXPECT_EQ(egret::test::read_file(folder / "out.txt"), "(Num 1)\n(Num 2)\n");
  EXPECT_THROW(s.run("(input edge \"bad.csv\")"), Error);
  EXPECT_THROW(s.run("(input edge \"none.csv\")"), Error);
  EXPECT_THROW(s.run("(include \"none.egg\")"), Error);
  EXPECT_EQ(s.size("edge"), 2u);
}

TEST(Forms, EitherAndMaybeHoldValuesThatFollowTheirClasses) {
  Session s;
  s.run(
      R"((datatype M (Num i64)) (sort EM (Either M i64)) (sort MM (Maybe M)) (relation have (EM MM))
    (have (either-left (Num 1)) (maybe-some (Num 1))) (have (either-left (Num 2)) (maybe-some (Num 2)))
    (have (either-right 1) (maybe-none)))");
  EXPECT_EQ(s.size("have"), 3u);
  s.run("(union (Num 1) (Num 2))");
  EXPECT_EQ(s.size("have"), 2u);
  s.run(
      R"((check (= (either-unwrap-right (either-right 1)) 1) (= (maybe-unwrap-or (maybe-none) (Num 2)) (Num 1)))
    (fail (check (= (either-unwrap-left (either-right 1)) (Num 1)))) (fail (check (= (maybe-unwrap (maybe-none)) (Num 1))))
    (sort IS (UnstableFn (i64) String)) (sort FS (UnstableFn (f64) String)) (sort EN (Either i64 f64))
    (check (= (either-match (either-left 2) (unstable-fn "to-string") (unstable-fn "to-string")) "2"))
    (check (= (either-match (either-right 2.0) (unstable-fn "to-string") (unstable-fn "to-string")) "2.0"))
    (sort MI (Maybe i64))
    (check (= (unstable-maybe-match (maybe-some 4) (unstable-fn "to-string") "none") "4")))");
}

TEST(Forms, HigherOrderPrimitivesOfMultisets) {
  Session s;
  s.run(
      R"((datatype M (Num i64) (Add M M)) (sort Ms (MultiSet M)) (sort Mss (MultiSet Ms)) (sort Fold (UnstableFn (M M) M))
    (sort Expand (UnstableFn (M) Ms)) (sort Test (UnstableFn (M) Unit)) (sort Each (UnstableFn (Ms) Ms)) (sort Index (UnstableFn (Ms M) i64))
    (relation even (M)) (even (Num 2)) (function parts (M) Ms :no-merge) (function count (Ms M) i64 :merge (+ old new))
    (let $xs (multiset-of (Num 1) (Num 2) (Num 2)))
    (set (parts (Num 1)) (multiset-of (Num 2) (Num 2)))
    (check (= (unstable-multiset-filter (unstable-fn "even") $xs) (multiset-of (Num 2) (Num 2))))
    (check (= (unstable-multiset-filter-not (unstable-fn "even") $xs) (multiset-of (Num 1))))
    (check (= (unstable-multiset-flat-map (unstable-fn "parts") $xs) (multiset-single (Num 2) 4)))
    (unstable-multiset-reduce (unstable-fn "Add") (Num 2) $xs)
    (check (= (unstable-multiset-reduce (unstable-fn "Add") (Num 2) (multiset-of)) (Num 2)))
    (check (= (multiset-sum-multisets (unstable-multiset-map (unstable-fn "unstable-multiset-flat-map" (unstable-fn "parts")) (multiset-of $xs)))
              (multiset-single (Num 2) 4)))
    (unstable-multiset-fill-index $xs (unstable-fn "count")))");
  EXPECT_EQ(s.size("Add"), 2u);
  EXPECT_EQ(s.size("count"), 2u);
  s.run("(check (= (count $xs (Num 2)) 2))");
  s.run("(multiset-union-values $xs) (check (= (Num 1) (Num 2)))");
  EXPECT_EQ(s.size("count"), 1u);
}

TEST(Forms, ElementsOfASetAreNumberedSmallNumbersFirst) {
  Session().run(
      R"((sort S (Set i64)) (check (= (set-get (set-of 1 -1 4 2) 0) 1)) (check (= (set-get (set-of 1 -1 4 2) 3) -1)))");
}

TEST(Forms, AnErrorLeavesTheSessionUsable) {
  Session s;
  s.run("(datatype M (A) (B) (C)) (relation r (M)) (r (A)) (r (B))");
  EXPECT_THROW(s.run("(union (A) (B)) (let x (+ 1 \"a\")) (r (C))"), Error);
  EXPECT_EQ(s.size("r"), 1u);
  s.run("(r (C)) (check (r (B)))");
  EXPECT_EQ(s.size("r"), 2u);
}

} // namespace
} // namespace egret::egraph::test
