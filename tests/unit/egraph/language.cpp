// Each form of the language by what it does to the tables.
#include "programs.h"

namespace egret::egraph::test {
namespace {

const char* const kMath = R"(
  (datatype Math (Num i64) (Var String) (Add Math Math) (Mul Math Math))
  (rewrite (Add a b) (Add b a))
  (rewrite (Mul a (Add b c)) (Add (Mul a b) (Mul a c)))
  (rewrite (Add (Num a) (Num b)) (Num (+ a b)))
  (rewrite (Mul (Num a) (Num b)) (Num (* a b))))";

TEST(Language, RewritesFindThatTwoTermsAreEqual) {
  Session s;
  s.run(kMath);
  std::string out = s.run(R"(
    (let $a (Mul (Num 2) (Add (Var "x") (Num 3))))
    (let $b (Add (Num 6) (Mul (Num 2) (Var "x"))))
    (fail (check (= $a $b)))
    (run 10)
    (check (= $a $b))
    (print-size))");
  EXPECT_EQ(out, "((Add 4)\n (Mul 3)\n (Num 3)\n (Var 1))\n");
}

TEST(Language, RelationsGiveTransitiveClosure) {
  Session s;
  s.run(R"(
    (relation edge (i64 i64)) (relation path (i64 i64))
    (rule ((edge a b)) ((path a b)))
    (rule ((path a b) (edge b c)) ((path a c)))
    (edge 1 2) (edge 2 3) (edge 3 4) (edge 4 1)
    (run 100))");
  EXPECT_EQ(s.size("path"), 16u);
}

TEST(Language, MergeKeepsTheSmallerDistance) {
  Session s;
  s.run(R"(
    (function dist (i64) i64 :merge (min old new))
    (relation edge (i64 i64 i64))
    (rule ((= d (dist a)) (edge a b w)) ((set (dist b) (+ d w))))
    (edge 0 1 4) (edge 0 2 1) (edge 2 1 2) (edge 1 3 5)
    (set (dist 0) 0)
    (run 10)
    (check (= (dist 1) 3) (= (dist 3) 8)))");
  EXPECT_EQ(s.size("dist"), 4u);
}

TEST(Language, RunStopsWhenUntilHoldsBeforeTheStep) {
  Session s;
  s.run(R"(
    (relation n (i64))
    (rule ((n x)) ((n (+ x 1))))
    (n 0)
    (run 100 :until (n 5)))");
  EXPECT_EQ(s.size("n"), 6u);
}

TEST(Language, PushAndPopRestoreEverything) {
  Session s;
  s.run("(relation n (i64)) (n 1) (push) (n 2) (relation m (i64)) (m 1) (pop)");
  EXPECT_EQ(s.size("n"), 1u);
  EXPECT_EQ(s.size("m"), 0xFFFFFFFFu);
}

TEST(Language, SubsumedRowsLeaveMatchingButCanBeChecked) {
  Session s;
  s.run(R"(
    (datatype E (A i64) (B i64) (C E))
    (rule ((= e (A x))) ((union e (B x)) (subsume (A x))) :name "lower")
    (rule ((= e (A x))) ((C e)))
    (A 1) (run 1)
    (check (= (A 1) (B 1))))");
  EXPECT_EQ(s.size("C"), 1u); // both rules matched the snapshot
  s.run("(A 2) (run 1) (run 1) (run 1)");
  EXPECT_EQ(s.size("C"), 2u);
  EXPECT_EQ(s.run("(extract (A 2))"), "(B 2)\n");
}

TEST(Language, DeletedRowsAreGone) {
  Session s;
  s.run("(relation n (i64)) (n 1) (n 2) (delete (n 1))");
  EXPECT_EQ(s.size("n"), 1u);
}

TEST(Language, NoMergeConflictNamesBothFacts) {
  std::string error = error_of("(function f (i64) i64 :no-merge)\n(set (f 1) 2)\n(set (f 1) 3)");
  EXPECT_NE(error.find("test.egg:3:1"), std::string::npos) << error;
  EXPECT_NE(error.find("(f 1) = 2 and 3"), std::string::npos) << error;
}

} // namespace
} // namespace egret::egraph::test
