// What is known of the coordinates of a scatter.
#include "compiler/scatter_coordinates.h"

#include "kernel/scatter_axes.h"
#include "support/contraction_regions.h"

#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

using kernel::BodyValue;

/// select(not(x < 0) and x < `limit`, x * `stride` + 5 * d0, `otherwise`) for a d0 below 3.
struct Indexed {
  kernel::Stage stage;

  explicit Indexed(std::int64_t limit, std::int64_t stride = 1, std::int64_t otherwise = -1) {
    const int x = value({.kind = BodyValue::Kind::Load, .dtype = DType::I64, .load = 0});
    const int negative = apply(Op::Lt, DType::Bool, {x, number(0)});
    const int truth = value({.kind = BodyValue::Kind::Constant,
                             .dtype = DType::Bool,
                             .constant = Scalar::of(DType::Bool, std::int64_t{1})});
    const int below = apply(Op::Lt, DType::Bool, {x, number(limit)});
    const int within =
        apply(Op::And, DType::Bool, {apply(Op::Xor, DType::Bool, {negative, truth}), below});
    const int line = value({.kind = BodyValue::Kind::Index,
                            .dtype = DType::I64,
                            .index = Expr(5) * Expr::axis(0, Expr(3))});
    const int element =
        apply(Op::Add, DType::I64, {apply(Op::Mul, DType::I64, {x, number(stride)}), line});
    apply(Op::Select, DType::I64, {within, element, number(otherwise)});
  }

  int value(BodyValue v) {
    stage.body.push_back(std::move(v));
    return int(stage.body.size()) - 1;
  }
  int number(std::int64_t n) {
    return value({.kind = BodyValue::Kind::Constant,
                  .dtype = DType::I64,
                  .constant = Scalar::of(DType::I64, n)});
  }
  int apply(Op op, DType type, std::vector<int> args) {
    BodyValue v;
    v.op = op;
    v.dtype = type;
    v.args = std::move(args);
    return value(std::move(v));
  }
  std::optional<ScatterCoordinate> found(std::int64_t extent) {
    return scatter_coordinate(stage, int(stage.body.size()) - 1, Expr(extent));
  }
};

TEST(ScatterCoordinates, AreALineAndAnIndexWithinIt) {
  const auto found = Indexed(5).found(15);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->base, Expr(5) * Expr::axis(0, Expr(3)));
  EXPECT_EQ(found->coefficient, Expr(1));
  EXPECT_EQ(found->component, 0);
  EXPECT_EQ(found->count, Expr(5));
}

TEST(ScatterCoordinates, AreNotTakenApartWhereALineLeavesTheData) {
  EXPECT_FALSE(Indexed(6).found(15).has_value());
  EXPECT_TRUE(Indexed(6).found(16).has_value());
  EXPECT_FALSE(Indexed(5, 2).found(18).has_value());
  EXPECT_TRUE(Indexed(5, 2).found(19).has_value());
}

TEST(ScatterCoordinates, AreNotTakenApartWhereOthersHaveAnElementToo) {
  EXPECT_FALSE(Indexed(5, 1, 0).found(15).has_value());
}

TEST(ScatterCoordinates, AreNotTakenApartWhereNumbersOverflow) {
  EXPECT_FALSE(Indexed(INT64_MAX, INT64_MAX).found(15).has_value());
}

// Rows of updates go to rows of data: what is known of a row's number is known once a row, and the
// scatter must still see it.
TEST(ScatterCoordinates, ConditionsOfFewerAxesStayWithTheScatter) {
  constexpr std::int64_t kRows = 300, kColumns = 17, kUpdates = 5000;
  const kernel::Region region = testing::region_of([&](ir::Graph& g) {
    const auto numbers = [&](std::int64_t n, const Shape& shape) {
      return g.broadcast(g.constant(Scalar::of(DType::I64, n)), shape);
    };
    const Shape updates{kUpdates, kColumns};
    const auto whole = [&](ir::NodeId a) { return g.expand(g.reshape(a, {kUpdates, 1}), updates); };
    const ir::NodeId row = g.input("row", DType::I64, {kUpdates});
    const ir::NodeId truth =
        g.broadcast(g.constant(Scalar::of(DType::Bool, std::int64_t{1})), {kUpdates});
    const ir::NodeId negative = g.binary(Op::Lt, row, numbers(0, {kUpdates}));
    const ir::NodeId within = g.binary(Op::And, g.binary(Op::Xor, negative, truth),
                                       g.binary(Op::Lt, row, numbers(kRows, {kUpdates})));
    const ir::NodeId column = g.expand(g.reshape(g.iota(kColumns), {1, kColumns}), updates);
    const ir::NodeId place =
        g.binary(Op::Add, g.binary(Op::Mul, whole(row), numbers(kColumns, updates)), column);
    return std::vector{g.scatter(Op::ScatterMax, g.input("data", DType::F32, {kRows * kColumns}),
                                 g.select(whole(within), place, numbers(-1, updates)),
                                 g.input("updates", DType::F32, updates), 0)};
  });
  EXPECT_EQ(kernel::independent_axes(region, region.outputs.at(0)).size(), 1u);
}

} // namespace
} // namespace egret::compiler
