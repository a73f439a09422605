// Containers, numbers of any size and function values.
#include "programs.h"

#include <chrono>

namespace egret::egraph::test {
namespace {

TEST(Containers, VecsFollowTheClassesInThem) {
  Session s;
  s.run(R"((datatype M (Num i64)) (sort V (Vec M)) (constructor Hold (V) M)
    (Hold (vec-of (Num 1) (Num 7))) (Hold (vec-of (Num 2) (Num 7))))");
  EXPECT_EQ(s.size("Hold"), 2u);
  s.run("(union (Num 1) (Num 2)) (check (= (Hold (vec-of (Num 1) (Num 7))) (Hold (vec-of (Num 2) "
        "(Num 7)))))");
  EXPECT_EQ(s.size("Hold"), 1u);
}

TEST(Containers, ARewrittenContainerIsNewToTheRules) {
  Session s;
  s.run(
      R"((datatype M (Num i64)) (sort V (Vec M)) (relation have (V)) (relation first (M)) (relation seen (i64))
    (rule ((have v) (= x (vec-get v 0)) (first x) (= x (Num n))) ((seen n)))
    (have (vec-of (Num 1))) (first (Num 2)) (run 1))");
  EXPECT_EQ(s.size("seen"), 0u);
  s.run("(union (Num 1) (Num 2)) (run 1)");
  EXPECT_EQ(s.size("seen"), 2u);
}

TEST(Containers, SetsMapsMultisetsAndPairs) {
  Session s;
  s.run(
      R"((datatype M (Num i64)) (sort S (Set M)) (sort MS (MultiSet M)) (sort Mp (Map String M)) (sort P (Pair i64 String))
    (let $s (set-of (Num 1) (Num 2))) (check (= (set-length $s) 2))
    (let $m (map-insert (map-insert (map-empty) "b" (Num 2)) "a" (Num 1)))
    (check (= (map-get $m "a") (Num 1)) (map-not-contains $m "c"))
    (check (= (multiset-of (Num 2) (Num 1) (Num 1)) (multiset-insert (multiset-of (Num 1) (Num 2)) (Num 1))))
    (check (= (pair-second (pair 1 "x")) "x"))
    (union (Num 1) (Num 2)) (check (= (set-length $s) 1)))");
  EXPECT_EQ(s.run("(extract $m)"), "(map-of \"b\" (Num 1) \"a\" (Num 1))\n");
}

TEST(Containers, OfTheMostFrequentElementsTheLastIsPicked) {
  Session s;
  s.run(R"((sort T (MultiSet i64))
    (check (= (multiset-pick-max (multiset-of 3 1 2 3 1)) 3))
    (check (= (multiset-pick-max (multiset-of 5 1 1 9)) 1))
    (check (= (multiset-pick-max (multiset-of 4 2 8)) 8))
    (fail (multiset-pick-max (multiset-of))))");
}

TEST(Containers, MultisetsAreSubtractedAsOftenAsTheyHold) {
  Session().run(
      R"((sort T (MultiSet i64)) (let $a (multiset-of 3 1 2 3 1)) (let $b (multiset-of 1 3 3))
    (check (= (multiset-subtract $a $b) (multiset-of 1 2)) (= (multiset-subtract-swapped $b $a) (multiset-of 1 2)))
    (check (= (multiset-subtract $a (multiset-of)) $a) (= (multiset-subtract $a $a) (multiset-of)))
    (fail (multiset-subtract $a (multiset-of 2 2))) (fail (multiset-subtract $b $a)))");
}

TEST(Containers, LongMultisetsAreSubtractedInOnePass) {
  // One element at a time, each moving those behind it, would take minutes.
  const auto begin = std::chrono::steady_clock::now();
  Session().run(R"((sort T (MultiSet i64))
    (let $a (multiset-single 1 1000000)) (let $b (multiset-insert (multiset-sum $a (multiset-single 2 1000000)) 3))
    (check (= (multiset-subtract $b $a) (multiset-insert (multiset-single 2 1000000) 3))))");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(Containers, AMapIsPrintedAsItCanBeRead) {
  Session s;
  std::string map =
      s.run(R"((sort Mp (Map i64 String)) (let $m (map-of 2 "b" 1 "x" 1 "a")) (extract $m))");
  EXPECT_EQ(map, "(map-of 1 \"a\" 2 \"b\")\n"); // of two entries with one key the later one holds
  s.run("(check (= $m " + map + ")) (check (= (map-of) (map-empty)))");
  EXPECT_NE(test::error_of("(sort Mp (Map i64 String)) (map-of 1 \"a\" 2)"), "");
}

TEST(Containers, FunctionValuesAreAppliedAndMapped) {
  Session s;
  s.run(
      R"((datatype M (Num i64) (Square M) (Add M M)) (sort F (UnstableFn (M) M)) (sort MS (MultiSet M))
    (rewrite (Square (Num x)) (Num (* x x)))
    (let $ys (unstable-multiset-map (unstable-fn "Square") (multiset-of (Num 2) (Num 3))))
    (let $z (unstable-app (unstable-fn "Add" (Num 1)) (Num 5)))
    (run 1)
    (check (= $ys (multiset-of (Num 4) (Num 9))))
    (check (= $z (Add (Num 1) (Num 5)))))");
}

TEST(BigNumbers, ArithmeticIsExact) {
  Session s;
  s.run(R"((let $a (from-string "123456789012345678901234567890"))
    (check (= (/ (* $a $a) $a) $a) (= (% (+ (* $a $a) (bigint 7)) $a) (bigint 7)))
    (check (= (/ (+ (* $a (<< $a 1000)) (bigint 5)) (<< $a 1000)) $a))
    (check (= (% (+ (* $a (<< $a 1000)) (bigint 5)) (<< $a 1000)) (bigint 5)))
    (check (= (/ $a (<< $a 64)) (bigint 0)) (= (% $a (<< $a 64)) $a))
    (check (= (>> (<< $a 100) 100) $a) (= (- (bigint 0) $a) (* $a (bigint -1))))
    (check (= (& (bigint -1) (bigint 255)) (bigint 255)) (= (bits (bigint 255)) (bigint 8)))
    (let $third (bigrat (bigint 1) (bigint 3)))
    (check (= (+ $third (+ $third $third)) (bigrat (bigint 5) (bigint 5))))
    (check (= (floor (bigrat (bigint -1) (bigint 2))) (bigrat (bigint -1) (bigint 1))))
    (check (= (sqrt (bigrat (bigint 4) (bigint 9))) (bigrat (bigint 2) (bigint 3))))
    (fail (sqrt (bigrat (bigint 0) (bigint 1)))) (fail (to-i64 $third))
    (check (= (to-i64 (* $third (bigrat (bigint 6) (bigint 1)))) 2)))");
  EXPECT_EQ(s.run("(extract (* $a (bigint 1000)))"),
            "(from-string \"123456789012345678901234567890000\")\n");
}

} // namespace
} // namespace egret::egraph::test
