#include "egret/error.h"
#include "egret/expr.h"

#include <gtest/gtest.h>

#include <thread>

namespace egret {
namespace {

class ExprTest : public testing::Test {
protected:
  Expr n = Expr::symbol("n", 1, 1 << 20), m = Expr::symbol("m", 1, 1 << 20);
  Expr k8 = Expr::symbol("k8", 8, 4096, 8);
  Expr any = Expr::symbol("any", INT64_MIN, INT64_MAX);
  Expr i = Expr::axis(0, 100), j = Expr::axis(1, 8), l = Expr::axis(2, 4);
  Expr dn = Expr::axis(3, n), dm = Expr::axis(4, m);
};

TEST_F(ExprTest, EqualExpressionsAreOneNode) {
  EXPECT_EQ((n + 1) * (m + 2), m * n + 2 * n + m + 2);
  EXPECT_EQ(n - n, Expr(0));
  EXPECT_EQ(floordiv(i + j, 3), floordiv(j + i, 3));
  EXPECT_NE(n, m);
}

TEST_F(ExprTest, AxesOfSizeOneAndZeroVanish) {
  EXPECT_EQ(Expr::axis(0, 1), Expr(0));
  EXPECT_EQ(Expr::axis(0, 0), Expr(0));
  EXPECT_EQ(Expr::symbol("fixed", 5, 5), Expr(5));
}

TEST_F(ExprTest, MultiplesLeaveAQuotient) {
  EXPECT_EQ(floordiv(8 * i + j, 8), i);
  EXPECT_EQ(floormod(8 * i + j, 8), j);
  EXPECT_EQ(floordiv(dm * n + dn, n), dm);
  EXPECT_EQ(floormod(dm * n + dn, n), dn);
  EXPECT_EQ(floordiv(24 * i + 3 * j + 1, 24), i);
  EXPECT_EQ(floordiv(6 * n, 4).str(), "(3*n)//2");
  EXPECT_EQ(floordiv(n * m * 6, n * 3), 2 * m);
  EXPECT_EQ(floordiv(i * (n + 1) + dn, n + 1), i);
  EXPECT_EQ(floormod(i * (n + 1) + dn, n + 1), dn);
}

TEST_F(ExprTest, RowsOfARepeatedAxisAreAffine) {
  const Expr p = Expr::axis(8, 28), k = Expr::axis(9, 3); // windows of 3 of 30 elements
  EXPECT_EQ(floormod(31 * k + p, 30), k + p);
  EXPECT_EQ(floordiv(31 * k + p, 30), k);
  EXPECT_EQ(floormod(29 * k + p + 2, 30), p - k + 2);
  EXPECT_EQ(floordiv(29 * k + p + 2, 30), k);
  const Expr whole = Expr::axis(8, 30); // the last one of these begins behind the axis
  EXPECT_EQ(30 * floordiv(31 * k + whole, 30) + floormod(31 * k + whole, 30), 31 * k + whole);
}

TEST_F(ExprTest, CommonFactorsAreCancelled) {
  EXPECT_EQ(floordiv(8 * i + j, 16), floordiv(i, 2));
  EXPECT_EQ(floormod(8 * i + j, 16), 8 * floormod(i, 2) + j);
  EXPECT_EQ(floordiv(n * i + dn, n * 4), floordiv(i, 4));
  EXPECT_EQ(floordiv(8 * i + j, 8 * n), floordiv(i, n));
  EXPECT_EQ(floormod(6 * i, 4), 2 * floormod(3 * i, 2));
}

TEST_F(ExprTest, ConstantsCarryOver) {
  EXPECT_EQ(floordiv(8 * i + j + 16, 8), i + 2);
  EXPECT_EQ(floordiv(8 * i - 1, 8), i - 1);
  EXPECT_EQ(floormod(8 * i - 1, 8), Expr(7));
  EXPECT_EQ(floordiv(8 * i + 7 - j, 8), i);
  EXPECT_EQ(floordiv(dn - n, n), Expr(-1));
  EXPECT_EQ(floordiv(Expr(-1), n), Expr(-1));
}

TEST_F(ExprTest, QuotientsOfQuotientsAreOne) {
  EXPECT_EQ(floordiv(floordiv(i, 3), 4), floordiv(i, 12));
  EXPECT_EQ(floordiv(floordiv(i, 3) + 1, 4), floordiv(i + 3, 12));
  EXPECT_EQ(floordiv(floordiv(any, n), m), floordiv(any, n * m));
}

TEST_F(ExprTest, RemaindersOfRemaindersAreOne) {
  EXPECT_EQ(floormod(floormod(i, 12), 4), floormod(i, 4));
  EXPECT_EQ(floormod(floormod(i, 12) + j, 4), floormod(i + j, 4));
  EXPECT_EQ(floordiv(floormod(i, 12), 4), floormod(floordiv(i, 4), 3));
  EXPECT_EQ(floordiv(floormod(any, n * m), n), floormod(floordiv(any, n), m));
}

TEST_F(ExprTest, QuotientAndRemainderGoTogetherAgain) {
  EXPECT_EQ(7 * floordiv(i, 7) + floormod(i, 7), i);
  EXPECT_EQ(n * floordiv(any, n) + floormod(any, n), any);
  EXPECT_EQ(m * 7 * floordiv(i, 7) + m * floormod(i, 7), m * i);
  EXPECT_EQ(i - 7 * floordiv(i, 7), floormod(i, 7));
  EXPECT_EQ(12 * floordiv(i, 12) + 4 * floormod(floordiv(i, 4), 3) + floormod(i, 4), i);
  EXPECT_EQ(4 * floormod(floordiv(i, 4), 3) + floormod(i, 4), floormod(i, 12));
  EXPECT_EQ(8 * floordiv(i + 3, 8) + floormod(i + 3, 8) - 3, i);
}

TEST_F(ExprTest, KnownDivisorsAreUsed) {
  EXPECT_EQ(floormod(k8, 8), Expr(0));
  EXPECT_EQ(8 * floordiv(k8, 8), k8);
  EXPECT_EQ(2 * floordiv(k8, 8), floordiv(k8, 4));
  EXPECT_EQ(ceildiv(k8, 8), floordiv(k8, 8));
  EXPECT_EQ(floordiv(k8 + j, 8), floordiv(k8, 8));
  EXPECT_EQ(floordiv(k8, 16).str(), "k8//16");
  EXPECT_EQ((k8 * 3 + 24).divisor(), 24);
}

TEST_F(ExprTest, NegativeDivisorsFollowTheirSign) {
  EXPECT_EQ(floordiv(Expr(7), -2), Expr(-4));
  EXPECT_EQ(floormod(Expr(7), -2), Expr(-1));
  EXPECT_EQ(floordiv(i, -4), floordiv(-i, 4));
  EXPECT_EQ(ceildiv(Expr(7), 2), Expr(4));
  EXPECT_EQ(ceildiv(Expr(7), -2), Expr(-3));
}

TEST_F(ExprTest, ExtremaByBounds) {
  EXPECT_EQ(min(j, 8), j);
  EXPECT_EQ(max(j, 8), Expr(8));
  EXPECT_EQ(min(dn, n), dn);
  EXPECT_EQ(max(n, 1), n);
  EXPECT_EQ(min(n + 3, n + 5), n + 3);
  EXPECT_EQ(min(min(n, m), n), min(m, n));
  EXPECT_EQ(min(n + i, m + i) - i, min(n, m));
  EXPECT_EQ(max(n, min(n, m)), n);
  EXPECT_EQ(min(n - 4, 8) + 4, min(n, 12));
}

TEST_F(ExprTest, ProofsUseSymbolicExtents) {
  EXPECT_TRUE(proves_less(dn, n));
  EXPECT_TRUE(proves_less(dm * n + dn, m * n));
  EXPECT_FALSE(proves_less(dm * n + dn, m * n - 1));
  EXPECT_TRUE(proves_less(floormod(any, n), n));
  EXPECT_TRUE(proves_less(floordiv(dn, 8) * 8, n));
  EXPECT_TRUE(proves_less_equal(n, n * m));
  EXPECT_TRUE(proves_less_equal(n, n * n));
  const Expr block = Expr::axis(5, floordiv(k8, 8));
  EXPECT_TRUE(proves_less_equal(8 * block + 8, k8));
  EXPECT_TRUE(proves_less(floordiv(Expr::axis(6, n * m), m), n));
  EXPECT_TRUE(proves_less_equal(min(n, m), m));
  EXPECT_TRUE(proves_less_equal(min(i + 8, 20) - i, 8));
  EXPECT_FALSE(proves_less(n, m));
}

TEST_F(ExprTest, SubstitutionRenewsExtents) {
  const Expr e = dn + n;
  const Expr five =
      substitute(e, [&](const Expr& v) { return v == n ? std::optional<Expr>(5) : std::nullopt; });
  EXPECT_EQ(five, Expr::axis(3, 5) + 5);
  EXPECT_EQ(variables_of(e), (std::vector<Expr>{n, dn}));
}

TEST_F(ExprTest, CoefficientsOfAffineVariables) {
  EXPECT_EQ(coefficient_of(i * n + 3 * i + j, i), n + 3);
  EXPECT_EQ(coefficient_of(j + 1, i), Expr(0));
  EXPECT_EQ(coefficient_of(i * i, i), std::nullopt);
  EXPECT_EQ(coefficient_of(i + floordiv(i, 3), i), std::nullopt);
}

TEST_F(ExprTest, TextShowsRowMajorOrder) {
  EXPECT_EQ((8 * i + j + 3).str(), "8*d0+d1+3");
  EXPECT_EQ((dm * n + dn).str(), "n*d4+d3");
  EXPECT_EQ((n - 1 - dn).str(), "n-d3-1");
  EXPECT_EQ((n * floordiv(i, 7) - 3 * floormod(i + 1, 5)).str(), "n*(d0//7)-3*((d0+1)%5)");
  EXPECT_EQ(min(n, m + 2).str(), "min(m,n-2)+2");
  EXPECT_EQ(to_string(Shape{2, n, n * 2}), "[2,n,2*n]");
}

TEST_F(ExprTest, ElementCountsAreExact) {
  EXPECT_EQ(element_count({}), Expr(1));
  EXPECT_EQ(element_count({2, n, 3}), 6 * n);
  EXPECT_EQ(element_count({INT64_MAX, INT64_MAX, 0}), Expr(0));
}

TEST_F(ExprTest, UnknownBoundsStayUnknown) {
  EXPECT_EQ((-any).lower(), INT64_MIN);
  EXPECT_EQ((-any).upper(), INT64_MAX);
  EXPECT_EQ((any + 1).upper(), INT64_MAX);
  EXPECT_EQ(floormod(any, 8).lower(), 0);
  EXPECT_EQ(floormod(any, 8).upper(), 7);
  const Expr large = Expr::symbol("large", 0, INT64_MAX);
  EXPECT_EQ((8 * large).upper(), INT64_MAX);
  EXPECT_EQ((-3 * large).lower(), INT64_MIN);
  EXPECT_FALSE(proves_less_equal(any, INT64_MAX - 1));
}

TEST_F(ExprTest, HashesDependOnStructureOnly) {
  // The number is part of what databases remember; it must not change from one process to another.
  EXPECT_EQ(Expr(7).hash(), Expr(7).hash());
  const auto before = (floordiv(3 * n + 1, 5) + i).hash();
  EXPECT_EQ((i + floordiv(1 + n * 3, 5)).hash(), before);
  EXPECT_EQ(before, 7450885597671405780u);
}

TEST_F(ExprTest, DeepNestsNeitherOverflowTheStackNorGrow) {
  // Each step reads the last twice; as a tree this has 2^5000 leaves.
  Expr e = n;
  for (int step = 0; step < 5000; ++step)
    e = floormod(floordiv(7 * e + 3 * floormod(e, 11) + 5, 13), 1000003);
  EXPECT_EQ(variables_of(e), std::vector<Expr>{n});
  std::int64_t want = 12345;
  for (int step = 0; step < 5000; ++step)
    want = (7 * want + 3 * (want % 11) + 5) / 13 % 1000003;
  EXPECT_EQ(evaluate(e, [](const Expr&) { return 12345; }), want);
  EXPECT_THROW((void)e.str(), Error);
  e = 0;
}

TEST_F(ExprTest, ThreadsShareNodes) {
  std::vector<std::vector<Expr>> made(4);
  std::vector<std::thread> threads;
  for (auto& mine : made)
    threads.emplace_back([&mine] {
      for (int round = 0; round < 20; ++round) {
        mine.clear();
        for (int x = 0; x < 200; ++x) {
          const Expr s = Expr::symbol("t" + std::to_string(x % 7), 1, 1000);
          mine.push_back(floordiv(s * x + 3, 5) + min(s, x) * 2);
        }
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  for (const auto& other : made)
    EXPECT_EQ(other, made[0]);
}

} // namespace
} // namespace egret
