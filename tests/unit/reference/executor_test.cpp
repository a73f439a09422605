#include "backend/reference/reference.h"
#include "support/graph_runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace egret {
namespace {

using backend::reference::apply;
using backend::reference::execute;
using backend::reference::HostArray;
using ir::Graph;
using ir::NodeId;
using testing::values_of;
using testing::vector_of;
using List = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Reference, MatmulIsExpandMultiplySum) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {1, 4}), w = g.input("w", DType::F32, {4, 5});
  NodeId left = g.expand(g.reshape(a, {1, 1, 4}), {1, 5, 4});
  NodeId right = g.reshape(g.permute(w, {1, 0}), {1, 5, 4});
  NodeId product = g.reduce(Op::ReduceSum, g.binary(Op::Mul, left, right), {2});
  List weights;
  for (int i = 1; i <= 20; ++i)
    weights.push_back(0.1 * i);
  HostArray wa(DType::F32, {4, 5}, weights);
  List got = values_of(g, product, {HostArray(DType::F32, {1, 4}, {1, 2, 3, 4}), wa});
  ASSERT_EQ(got.size(), 5u);
  for (int i = 0; i < 5; ++i)
    EXPECT_NEAR(got[i], 11 + i, 2e-6);
}

/// What need not be stored is computed along with its reader, however many readers follow.
TEST(Reference, ChainsMayBeLong) {
  Graph g;
  const NodeId x = g.input("x", DType::I64, {2, 3});
  const NodeId one = g.expand(g.reshape(g.constant(DType::I64, 1), {1, 1}), {3, 2});
  NodeId sum = g.permute(x, {1, 0}), moved = sum;
  for (int i = 0; i < 50001; ++i) {
    sum = g.binary(Op::Add, sum, one);
    moved = g.flip(moved, {i % 2});
  }
  const HostArray values(DType::I64, {2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(values_of(g, sum, {values}), (List{50002, 50005, 50003, 50006, 50004, 50007}));
  EXPECT_EQ(values_of(g, g.binary(Op::Mul, moved, one), {values}), (List{3, 6, 2, 5, 1, 4}));
}

TEST(Reference, EveryNodeIsRoundedOnceToItsDtype) {
  Graph g;
  NodeId third = g.binary(Op::Div, g.constant(DType::BF16, 1), g.constant(DType::BF16, 3));
  EXPECT_EQ(values_of(g, third), List{0.333984375});
  NodeId f = g.binary(Op::Div, g.constant(DType::F32, 1), g.constant(DType::F32, 3));
  EXPECT_EQ(values_of(g, f), List{double(1.0f / 3.0f)});
}

TEST(Reference, SumsAccumulateInDoublePrecision) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {3});
  NodeId sum = g.reduce(Op::ReduceSum, x, {0});
  EXPECT_EQ(values_of(g, sum, {HostArray(DType::F32, {3}, {1e8, 1, -1e8})}), List{1});
}

TEST(Reference, IntegersWrap) {
  Graph g;
  NodeId x = vector_of(g, DType::I8, {127, -128, 100});
  EXPECT_EQ(values_of(g, g.binary(Op::Add, x, x)), (List{-2, 0, -56}));
  NodeId u = vector_of(g, DType::U8, {255, 3});
  EXPECT_EQ(values_of(g, g.binary(Op::Mul, u, u)), (List{1, 9}));
  EXPECT_EQ(values_of(g, g.reduce(Op::ReduceSum, x, {0})), List{99});
}

TEST(Reference, ReductionsOfNothingGiveTheIdentity) {
  Graph g;
  NodeId f = g.input("f", DType::F32, {0, 2}), i = g.input("i", DType::I32, {0, 2});
  std::vector<HostArray> in{HostArray(DType::F32, {0, 2}), HostArray(DType::I32, {0, 2})};
  EXPECT_EQ(values_of(g, g.reduce(Op::ReduceSum, f, {0}), in), (List{0, 0}));
  EXPECT_EQ(values_of(g, g.reduce(Op::ReduceProd, f, {0}), in), (List{1, 1}));
  EXPECT_EQ(values_of(g, g.reduce(Op::ReduceMax, f, {0}), in), (List{-kInf, -kInf}));
  EXPECT_EQ(values_of(g, g.reduce(Op::ReduceMax, i, {0}), in),
            (List{-2147483648.0, -2147483648.0}));
  EXPECT_EQ(values_of(g, g.reduce(Op::ReduceArgMax, f, {0}), in), (List{0, 0}));
  EXPECT_EQ(values_of(g, g.scan(Op::ScanSum, f, 0), in), List{});
  EXPECT_EQ(values_of(g, g.scan(Op::ScanSum, f, 1), in), List{});
}

TEST(Reference, MaximaLetNaNThroughAndArgmaxFindsTheFirst) {
  Graph g;
  NodeId x = vector_of(g, DType::F32, {1, 5, kNaN, 5});
  EXPECT_TRUE(std::isnan(values_of(g, g.reduce(Op::ReduceMax, x, {0}))[0]));
  EXPECT_EQ(values_of(g, g.reduce(Op::ReduceArgMax, x, {0})), List{2});
  NodeId ties = vector_of(g, DType::I32, {1, 5, 5, -3});
  EXPECT_EQ(values_of(g, g.reduce(Op::ReduceArgMax, ties, {0})), List{1});
}

TEST(Reference, ReducesAnyAxes) {
  Graph g;
  NodeId x = g.reshape(g.iota(12, DType::F32), {2, 3, 2});
  EXPECT_EQ(values_of(g, g.reduce(Op::ReduceSum, x, {0, 2})), (List{14, 22, 30}));
  EXPECT_EQ(values_of(g, g.reduce(Op::ReduceMax, x, {1})), (List{4, 5, 10, 11}));
  EXPECT_EQ(values_of(g, g.reduce(Op::ReduceSum, x, {0, 1, 2})), List{66});
}

TEST(Reference, ScansAlongAnyAxis) {
  Graph g;
  NodeId x = g.reshape(vector_of(g, DType::F32, {1, 2, 3, 4, 5, 6}), {2, 3});
  EXPECT_EQ(values_of(g, g.scan(Op::ScanSum, x, 1)), (List{1, 3, 6, 4, 9, 15}));
  EXPECT_EQ(values_of(g, g.scan(Op::ScanProd, x, 0)), (List{1, 2, 3, 4, 10, 18}));
  EXPECT_EQ(values_of(g, g.scan(Op::ScanMax, g.flip(x, {1}), 1)), (List{3, 3, 3, 6, 6, 6}));
  NodeId factor = g.reshape(vector_of(g, DType::F32, {9, 2, 0, 9, -1, 0.5}), {2, 3});
  EXPECT_EQ(values_of(g, g.linear_scan(x, factor, 1)), (List{1, 4, 3, 4, 1, 6.5}));
}

TEST(Reference, GatherPutsTheIndexDimsInPlaceOfTheAxis) {
  Graph g;
  NodeId data = g.reshape(g.iota(6, DType::F32), {2, 3});
  NodeId index = g.reshape(vector_of(g, DType::I32, {2, 0, -1, 3}), {2, 2});
  NodeId got = g.gather(data, index, 1);
  EXPECT_EQ(to_string(g[got].shape), "[2,2,2]");
  EXPECT_EQ(values_of(g, got), (List{2, 0, 0, 0, 5, 3, 0, 0}));
}

TEST(Reference, ScattersCombineRepeatsInOrderAndDropWhatIsOutside) {
  Graph g;
  NodeId data = vector_of(g, DType::F32, {10, 20, 30});
  NodeId index = vector_of(g, DType::I64, {1, 1, 5, 0});
  NodeId updates = vector_of(g, DType::F32, {1, 2, 3, 40});
  EXPECT_EQ(values_of(g, g.scatter(Op::ScatterSet, data, index, updates, 0)), (List{40, 2, 30}));
  EXPECT_EQ(values_of(g, g.scatter(Op::ScatterAdd, data, index, updates, 0)), (List{50, 23, 30}));
  EXPECT_EQ(values_of(g, g.scatter(Op::ScatterMax, data, index, updates, 0)), (List{40, 20, 30}));
}

TEST(Reference, MovementSendsElementsWhereItSays) {
  Graph g;
  NodeId x = g.reshape(g.iota(6, DType::I32), {2, 3});
  Scalar nine = Scalar::of(DType::I32, std::int64_t{9});
  EXPECT_EQ(values_of(g, g.permute(x, {1, 0})), (List{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(values_of(g, g.flip(x, {0, 1})), (List{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(values_of(g, g.pad(x, {1, 0}, {0, 1}, nine)),
            (List{9, 9, 9, 9, 0, 1, 2, 9, 3, 4, 5, 9}));
  EXPECT_EQ(values_of(g, g.shrink(x, {0, 1}, {2, 2})), (List{1, 4}));
  EXPECT_EQ(values_of(g, g.expand(g.reshape(g.iota(2), {2, 1}), {2, 2})), (List{0, 0, 1, 1}));
}

TEST(Reference, BitsAreReadAsAnotherType) {
  Graph g;
  NodeId x = vector_of(g, DType::F32, {1, -0.0});
  EXPECT_EQ(values_of(g, g.bitcast(x, DType::I32)), (List{1065353216, -2147483648.0}));
  NodeId bits = vector_of(g, DType::I16, {0x3f80, -1});
  List got = values_of(g, g.bitcast(bits, DType::BF16));
  EXPECT_EQ(got[0], 1);
  EXPECT_TRUE(std::isnan(got[1]));
}

TEST(Reference, CastsSaturateTruncateAndWrap) {
  Graph g;
  NodeId x = vector_of(g, DType::F64, {1e20, -1e20, kNaN, -2.7, 2.7});
  EXPECT_EQ(values_of(g, g.cast(x, DType::I32)), (List{2147483647, -2147483648.0, 0, -2, 2}));
  EXPECT_EQ(values_of(g, g.cast(x, DType::U8)), (List{255, 0, 0, 0, 2}));
  EXPECT_EQ(values_of(g, g.cast(x, DType::Bool)), (List{1, 1, 1, 1, 1}));
  NodeId i = vector_of(g, DType::I32, {300, -1});
  EXPECT_EQ(values_of(g, g.cast(i, DType::U8)), (List{44, 255}));
}

TEST(Reference, SelectIgnoresTheBranchNotTaken) {
  Graph g;
  NodeId c = vector_of(g, DType::Bool, {1, 0});
  NodeId a = vector_of(g, DType::F32, {1, kNaN}), b = vector_of(g, DType::F32, {kInf, 2});
  EXPECT_EQ(values_of(g, g.select(c, a, b)), (List{1, 2}));
}

TEST(Reference, SymbolicDimsFollowFromTheInputs) {
  Graph g;
  Expr n = Expr::symbol("n", 1, 100);
  NodeId x = g.input("x", DType::F32, {n, 2});
  NodeId y = g.reduce(Op::ReduceSum, g.reshape(g.shrink(x, {0, 0}, {n, 1}), {n}), {0});
  EXPECT_EQ(values_of(g, y, {HostArray(DType::F32, {3, 2}, {1, 0, 2, 0, 3, 0})}), List{6});
  NodeId first = g.reduce(Op::ReduceSum, g.cast(g.iota(n * 2), DType::F32), {0});
  EXPECT_EQ(values_of(g, first, {HostArray(DType::F32, {3, 2})}), List{15});
}

TEST(Reference, OutputsMayBeInputsAndMayRepeat) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {2});
  NodeId y = g.binary(Op::Add, x, x);
  g.outputs = {x, y, y};
  auto out = execute(g, std::vector{HostArray(DType::F32, {2}, {1, 2})});
  ASSERT_EQ(out.size(), 3u);
  EXPECT_EQ(out[0].doubles(), (List{1, 2}));
  EXPECT_EQ(out[1].doubles(), (List{2, 4}));
  EXPECT_EQ(out[2].doubles(), (List{2, 4}));
}

TEST(Reference, APowerOfANegativeNumberIsInDoubtWhereItsExponentMayBeAnInteger) {
  const auto error = [](double base, double exponent, double in_doubt) {
    return apply(Op::Pow, DType::F32, DType::F32, {{.f = base}, 0}, {{.f = exponent}, in_doubt})
        .error;
  };
  EXPECT_EQ(error(-3, -50.5, 0.75), kInf); // -51 is within, where the power is almost 0
  EXPECT_EQ(error(-3, -50.5, 0.25), 0);    // no number at all
  EXPECT_EQ(error(-3, 50.5, 0), 0);
  EXPECT_LT(error(3, 2.5, 0.75), kInf);
}

TEST(Reference, BitsOfANumberThatMayBeEitherZeroAreInDoubt) {
  const auto error = [](double value, double in_doubt) {
    return apply(Op::Bitcast, DType::I64, DType::F64, {{.f = value}, in_doubt}).error;
  };
  EXPECT_GE(error(0, 1e-300), 0x1p63); // as far as the bits of -0
  EXPECT_GE(error(1e-310, 1e-300), 0x1p63);
  EXPECT_LT(error(1, 1e-3), 0x1p53);
  EXPECT_EQ(error(0, 0), 0);
}

} // namespace
} // namespace egret
