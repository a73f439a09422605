// What is known of the coordinates of a scatter.
#include "compiler/scatter_coordinates.h"

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
  std::optional<ScatterCoordinate> found(std::int64_t extent) const {
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

} // namespace
} // namespace egret::compiler
