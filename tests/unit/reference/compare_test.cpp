#include "backend/reference/reference.h"
#include "support/graph_runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace egret {
namespace {

using namespace backend::reference;
using ir::Graph;
using ir::NodeId;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
const double kNotANumber = std::numeric_limits<double>::quiet_NaN();

Expected exactly(DType type, Dims dims, std::initializer_list<double> values) {
  return {HostArray(type, std::move(dims), values), {}};
}

Expected expected_of(const Graph& g, NodeId node, const std::vector<HostArray>& inputs) {
  const NodeId nodes[] = {node};
  return expect(g, inputs, nodes)[0];
}

TEST(Compare, NamesTheFirstWrongElement) {
  Expected want{HostArray(DType::F32, {2, 2}, {1, 2, 3, 4}), {0, 0.5, 0, 0}};
  Comparison c = compare(HostArray(DType::F32, {2, 2}, {1, 2.25, 5, 7}), want, "output 0");
  EXPECT_FALSE(c.ok);
  EXPECT_EQ(c.first, 2);
  EXPECT_EQ(c.wrong, 2);
  EXPECT_EQ(c.message, "output 0: element [1,0] is 5, expected 3 (tolerance 0, f32); 2 of 4 "
                       "elements are wrong");
  EXPECT_EQ(c.worst, 0.5);
}

TEST(Compare, WantsNaNsAndInfinitiesWhereTheReferenceHasThem) {
  Expected want = exactly(DType::F32, {3}, {kNotANumber, kInfinite, 1});
  EXPECT_TRUE(compare(HostArray(DType::F32, {3}, {kNotANumber, kInfinite, 1}), want, "y").ok);
  EXPECT_FALSE(compare(HostArray(DType::F32, {3}, {0, kInfinite, 1}), want, "y").ok);
  EXPECT_FALSE(compare(HostArray(DType::F32, {3}, {kNotANumber, -kInfinite, 1}), want, "y").ok);
  EXPECT_FALSE(compare(HostArray(DType::F32, {3}, {kNotANumber, 3e38, 1}), want, "y").ok);
  EXPECT_FALSE(
      compare(HostArray(DType::F32, {3}, {kNotANumber, kInfinite, kNotANumber}), want, "y").ok);
  want.error = {0, 0, 1e30};
  EXPECT_FALSE(
      compare(HostArray(DType::F32, {3}, {kNotANumber, kInfinite, kNotANumber}), want, "y").ok);
}

TEST(Compare, RefusesAnotherShapeOrDtype) {
  Expected want = exactly(DType::F32, {2}, {1, 2});
  EXPECT_EQ(compare(HostArray(DType::F64, {2}, {1, 2}), want, "y").message,
            "y: got f64[2], expected f32[2]");
  EXPECT_FALSE(compare(HostArray(DType::F32, {1, 2}, {1, 2}), want, "y").ok);
}

TEST(Compare, ZeroSignsCountOnRequest) {
  Expected want = exactly(DType::F32, {1}, {0});
  EXPECT_TRUE(compare(HostArray(DType::F32, {1}, {-0.0}), want, "y").ok);
  EXPECT_FALSE(compare(HostArray(DType::F32, {1}, {-0.0}), want, "y", {.zero_signs = true}).ok);
}

TEST(Estimate, ASumMayErrInProportionToItsTermsNotToItself) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {4});
  NodeId sum = g.reduce(Op::ReduceSum, x, {0});
  Expected e = expected_of(g, sum, {HostArray(DType::F32, {4}, {1e6, -1e6, 1e6, -1e6})});
  EXPECT_EQ(e.value.doubles(), std::vector<double>{0});
  EXPECT_GE(e.error[0], 4e6 * 0x1p-24);
  EXPECT_LE(e.error[0], 4e6 * 0x1p-24 * 10);
}

// The same rounding happens at each step, so that errors add up rather than cancel.
TEST(Estimate, EqualTermsInARowMayAllRoundTheSameWay) {
  constexpr int n = 240;
  Graph g;
  NodeId x = g.input("x", DType::F32, {n}), product = g.reduce(Op::ReduceProd, x, {0}),
         sum = g.reduce(Op::ReduceSum, x, {0});
  HostArray equal(DType::F32, {n}), mixed(DType::F32, {n});
  for (int i = 0; i < n; ++i) {
    equal.set(i, Number{.f = 0.9375f});
    mixed.set(i, Number{.f = i % 2 == 0 ? 0.9375f : 1.0625f});
  }
  auto relative = [&](NodeId node, const HostArray& values) {
    const Expected e = expected_of(g, node, {values});
    return e.error[0] / std::fabs(e.value.doubles()[0]);
  };
  for (NodeId node : {product, sum}) {
    EXPECT_GE(relative(node, equal), n * 0x1p-24);
    EXPECT_LE(relative(node, equal), 2 * n * 0x1p-24);
    EXPECT_LE(relative(node, mixed), n / 4 * 0x1p-24);
  }
}

TEST(Compare, TooLargeForAFormatWithoutInfinityIsNaN) {
  Expected want = exactly(DType::F8E4M3, {2}, {1, 448});
  want.error = {0, 32};
  EXPECT_TRUE(compare(HostArray(DType::F8E4M3, {2}, {1, kNotANumber}), want, "y").ok);
  EXPECT_FALSE(compare(HostArray(DType::F8E4M3, {2}, {kNotANumber, 448}), want, "y").ok);
  want.error = {0, 0};
  EXPECT_FALSE(compare(HostArray(DType::F8E4M3, {2}, {1, kNotANumber}), want, "y").ok);
}

// Another order of casts and sums may stay just below what is too large.
TEST(Estimate, AProductThatOverflowsToNaNIsUnknown) {
  Graph g;
  NodeId x = g.input("x", DType::F8E4M3, {2}), y = g.input("y", DType::F8E4M3, {2});
  const Expected e =
      expected_of(g, g.binary(Op::Mul, x, y),
                  {HostArray(DType::F8E4M3, {2}, {24, 2}), HostArray(DType::F8E4M3, {2}, {20, 3})});
  EXPECT_TRUE(std::isinf(e.error[0]));
  EXPECT_LT(e.error[1], 1);
}

// -x - x overflows to -inf, which with inf is NaN; -x + inf is inf.
TEST(Estimate, ASumThatOverflowsBeforeItMeetsAnInfinityIsUnknown) {
  Graph g;
  NodeId x = g.input("x", DType::F64, {3, 3});
  const double big = -1.5e308;
  const Expected e = expected_of(
      g, g.reduce(Op::ReduceSum, x, {1}),
      {HostArray(DType::F64, {3, 3},
                 {big, big, kInfinite, 1, kNotANumber, big, kInfinite, big, -kInfinite})});
  EXPECT_EQ(e.error, (std::vector<double>{kInfinite, 0, 0}));
}

// Another order multiplies what overflowed by what vanished, or by a term that may be zero.
TEST(Estimate, AProductWhoseInfinityMayMeetAZeroIsUnknown) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {2, 10});
  const double big = 1e38;
  // Ten sizes beyond the largest f64 together; a term with an infinite value decides, -1 or 0.5
  // not.
  const HostArray factors(
      DType::F32, {2, 10},
      {big, big, big, big, big, big, big, big, big, 0, 2, 1, 1, 1, 1, 1, 1, 1, kInfinite, 0.5});
  const Expected plain = expected_of(g, g.reduce(Op::ReduceProd, x, {1}), {factors});
  EXPECT_EQ(plain.error, (std::vector<double>{kInfinite, 0}));
  // (1e8 + 4) - 1e8 is 0 in f32, and 8 where the sum is rounded up.
  const NodeId z = g.input("z", DType::F32, {1, 2}), w = g.input("w", DType::F32, {1, 2});
  const NodeId minus = g.input("minus", DType::F32, {1, 2});
  const NodeId scale = g.input("scale", DType::F32, {1, 2});
  const NodeId doubted = g.binary(Op::Add, g.binary(Op::Add, z, w), minus);
  const Expected zero = expected_of(
      g, g.reduce(Op::ReduceProd, g.binary(Op::Mul, doubted, scale), {1}),
      {factors, HostArray(DType::F32, {1, 2}, {1e8, 0}), HostArray(DType::F32, {1, 2}, {4, 1}),
       HostArray(DType::F32, {1, 2}, {-1e8, 0}), HostArray(DType::F32, {1, 2}, {1, kInfinite})});
  EXPECT_EQ(zero.error, (std::vector<double>{kInfinite}));
}

TEST(Estimate, MovementInputsAndIntegersAreExact) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {4}), i = g.input("i", DType::I32, {4});
  std::vector<HostArray> in{HostArray(DType::F32, {4}, {1, 2, 3, 4}),
                            HostArray(DType::I32, {4}, {1, 2, 3, 4})};
  EXPECT_EQ(expected_of(g, g.flip(x, {0}), in).error, std::vector<double>(4, 0));
  EXPECT_EQ(expected_of(g, g.binary(Op::Max, x, g.flip(x, {0})), in).error,
            std::vector<double>(4, 0));
  EXPECT_EQ(expected_of(g, g.binary(Op::Mul, i, i), in).error, std::vector<double>(4, 0));
}

TEST(Estimate, AComparisonOfRoundedValuesIsInDoubtOnlyWhenTheyAreClose) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {2});
  NodeId y = g.unary(Op::Exp, x); // carries an error
  NodeId limit = g.broadcast(g.constant(DType::F32, std::exp(1.0)), {2});
  Expected e = expected_of(g, g.binary(Op::Lt, y, limit), {HostArray(DType::F32, {2}, {1, 0})});
  EXPECT_EQ(e.error, (std::vector<double>{1, 0}));
}

TEST(Estimate, NumbersMayBeEqualInsideTheirIntervals) {
  const auto error = [](double a, double by, double b) {
    return apply(Op::Eq, DType::Bool, DType::F32, {{.f = a}, by}, {{.f = b}, 0}).error;
  };
  EXPECT_EQ(error(0, 1, 0.75), 1);
  EXPECT_EQ(error(0, 1, 1.25), 0);
  EXPECT_EQ(error(0, 0, 0.75), 0);
  EXPECT_EQ(error(NAN, 1, 0.75), 0);
}

TEST(Estimate, NothingIsKnownBehindAPoleWithinTheError) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {2});
  NodeId difference = g.binary(
      Op::Add, g.unary(Op::Sin, x),
      g.unary(Op::Sin, g.binary(Op::Mul, x, g.broadcast(g.constant(DType::F32, -1), {2}))));
  Expected e = expected_of(g, g.unary(Op::Recip, difference), {HostArray(DType::F32, {2}, {1, 0})});
  EXPECT_EQ(e.error[0], kInfinite); // 1 / (0 with an error)
  EXPECT_EQ(e.error[1], 0);         // sin(0) - sin(0) is exact, so its reciprocal is infinite
  EXPECT_EQ(e.value.doubles()[1], kInfinite);
  Comparison c = compare(HostArray(DType::F32, {2}, {12, kInfinite}), e, "y");
  EXPECT_TRUE(c.ok);
  EXPECT_EQ(c.vacuous, 1);
}

TEST(Estimate, OverflowJustBeyondTheLargestNumberIsInDoubt) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {3});
  const double to_largest = double(float(std::exp(44.0))) / largest(DType::F32);
  NodeId y =
      g.binary(Op::Div, g.unary(Op::Exp, x), g.broadcast(g.constant(DType::F32, to_largest), {3}));
  Expected e = expected_of(g, y, {HostArray(DType::F32, {3}, {44, 43, 45})});
  EXPECT_TRUE(accepts(DType::F32, e.at(0), {.f = kInfinite}));
  EXPECT_TRUE(accepts(DType::F32, e.at(0), {.f = largest(DType::F32)}));
  EXPECT_FALSE(accepts(DType::F32, e.at(1), {.f = kInfinite}));
  EXPECT_FALSE(accepts(DType::F32, e.at(2), {.f = largest(DType::F32)}));
}

// A fused multiply-add takes the product unrounded, so that it need not overflow where a sum reads
// it.
TEST(Estimate, OverflowOfAProductIsInDoubt) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {1});
  NodeId y = g.reduce(Op::ReduceSum, g.binary(Op::Mul, x, x), {0});
  Expected e = expected_of(g, y, {HostArray(DType::F32, {1}, {1e30})});
  EXPECT_TRUE(accepts(DType::F32, e.at(0), {.f = kInfinite}));
  EXPECT_TRUE(accepts(DType::F32, e.at(0), {.f = largest(DType::F32)}));
}

// What float arithmetic in other orders gives stays within the tolerance, and a wrong term does
// not.
TEST(Estimate, AcceptsOtherOrdersAndRefusesAMissingTerm) {
  constexpr int n = 3000;
  std::vector<double> a, b;
  for (int i = 0; i < n; ++i) {
    a.push_back(float(std::sin(i * 0.7) + 0.3));
    b.push_back(float(std::cos(i * 1.3)));
  }
  Graph g;
  NodeId x = g.input("x", DType::F32, {n}), y = g.input("y", DType::F32, {n});
  NodeId dot = g.reduce(Op::ReduceSum, g.binary(Op::Mul, x, y), {0});
  Expected e = expected_of(g, dot, {HostArray(DType::F32, {n}, a), HostArray(DType::F32, {n}, b)});
  float forward = 0, fused = 0, lanes[8] = {};
  for (int i = 0; i < n; ++i) {
    forward += float(a[i]) * float(b[i]);
    fused = std::fma(float(a[i]), float(b[i]), fused);
    lanes[i % 8] += float(a[i]) * float(b[i]);
  }
  float by_lane = 0;
  for (float lane : lanes)
    by_lane += lane;
  for (float value : {forward, fused, by_lane})
    EXPECT_TRUE(accepts(DType::F32, e.at(0), {.f = value})) << value << " " << e.error[0];
  EXPECT_FALSE(accepts(DType::F32, e.at(0), {.f = forward - a[5] * b[5]}));
}

} // namespace
} // namespace egret
