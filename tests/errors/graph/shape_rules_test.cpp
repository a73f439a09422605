// Each message of the shape and dtype rules, with the kind of error.
#include "egret/ir.h"

#include <gtest/gtest.h>

#include <functional>

namespace egret::ir {
namespace {

void expect_error(ErrorKind kind, const std::string& message, const std::function<void()>& body) {
  try {
    body();
    FAIL() << "no error; expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), message);
    EXPECT_EQ(error.kind(), kind) << message;
  }
}

class ShapeRules : public ::testing::Test {
protected:
  NodeId f32(Shape shape) { return g.input("f", DType::F32, std::move(shape)); }
  NodeId i32(Shape shape) { return g.input("i", DType::I32, std::move(shape)); }
  NodeId boolean(Shape shape) { return g.input("b", DType::Bool, std::move(shape)); }
  Graph g;
  Scalar zero = Scalar::of(DType::F32, 0.0);
};

TEST_F(ShapeRules, Operands) {
  expect_error(ErrorKind::Shape,
               "add: shapes differ: [2,3] and [4,5]; operands of a graph node must have equal "
               "shapes (broadcast them first)",
               [&] {
                 g.binary(Op::Add, f32({2, 3}), f32({4, 5}));
               });
  expect_error(ErrorKind::DType,
               "mul: dtypes differ: f32 and i32; operands of a graph node must have equal dtypes "
               "(cast them first)",
               [&] { g.binary(Op::Mul, f32({2}), i32({2})); });
  expect_error(ErrorKind::DType, "exp: takes floats, got i32 (cast it first)",
               [&] { g.unary(Op::Exp, i32({2})); });
  expect_error(ErrorKind::DType, "idiv: takes integers, got f32 (cast it first)",
               [&] { g.binary(Op::IDiv, f32({2}), f32({2})); });
  expect_error(ErrorKind::DType, "and: takes integers or bool, got f32 (cast it first)",
               [&] { g.binary(Op::And, f32({2}), f32({2})); });
  expect_error(ErrorKind::DType, "add: takes numbers, got bool (cast it first)",
               [&] { g.binary(Op::Add, boolean({2}), boolean({2})); });
  expect_error(ErrorKind::DType, "select: the condition must be bool, got f32",
               [&] { g.select(f32({2}), f32({2}), f32({2})); });
  expect_error(ErrorKind::Value, "add: takes 2 operands, got 1",
               [&] { g.unary(Op::Add, f32({2})); });
  expect_error(ErrorKind::Value, "exp: operand %99 does not exist; the graph has 0 nodes",
               [] { Graph().unary(Op::Exp, 99); });
}

TEST_F(ShapeRules, Sources) {
  expect_error(ErrorKind::Shape, "input: dim 1 of [2,-3] may be negative (-3 >= -3)", [&] {
    f32({2, -3});
  });
  expect_error(ErrorKind::Shape,
               "input: `lr` is passed by value and must have rank 0, not shape [1]",
               [&] { g.input("lr", DType::F32, {1}, true); });
  expect_error(ErrorKind::Shape, "input: rank 33 is above the limit of 32",
               [&] { f32(Shape(33, Expr(1))); });
  expect_error(ErrorKind::Shape,
               "input: f32[4611686018427387904] is too large: its bytes do not fit a 64-bit number",
               [&] { f32({std::int64_t{1} << 62}); });
  expect_error(ErrorKind::Shape,
               "input: f32[0,4611686018427387904] is too large: its bytes do not fit a 64-bit "
               "number",
               [&] {
                 f32({0, std::int64_t{1} << 62});
               });
  expect_error(ErrorKind::DType, "iota: takes numbers, got bool (cast it first)",
               [&] { g.iota(3, DType::Bool); });
  Attrs no_size;
  expect_error(ErrorKind::Shape, "iota: takes one size, got shape []",
               [&] { g.add(Op::Iota, {}, no_size); });
  Attrs slot;
  slot.name = "x";
  slot.slot = 3;
  expect_error(ErrorKind::Value, "input: `x` asks for slot 3; the next one is 0",
               [&] { g.add(Op::Input, {}, slot); });
  f32({2});
  slot.slot = 0;
  expect_error(ErrorKind::Value, "input: `x` asks for slot 0; another input has it",
               [&] { g.add(Op::Input, {}, slot); });
}

TEST_F(ShapeRules, Axes) {
  expect_error(ErrorKind::Axis, "sum: axis 2 is out of range for shape [2,3] of rank 2", [&] {
    g.reduce(Op::ReduceSum, f32({2, 3}), {2});
  });
  expect_error(ErrorKind::Axis, "sum: axis -1 is out of range for shape [2,3] of rank 2", [&] {
    g.reduce(Op::ReduceSum, f32({2, 3}), {-1});
  });
  expect_error(ErrorKind::Axis, "amax: axes [1,1] must be ascending, each at most once", [&] {
    g.reduce(Op::ReduceMax, f32({2, 3}), {1, 1});
  });
  expect_error(ErrorKind::Axis, "argmax: axes [0,1]: exactly one axis is taken", [&] {
    g.reduce(Op::ReduceArgMax, f32({2, 3}), {0, 1});
  });
  expect_error(ErrorKind::Axis, "argmax: no axis is given for shape [2,3]; at least one is needed",
               [&] {
                 g.reduce(Op::ReduceArgMax, f32({2, 3}), {});
               });
  expect_error(ErrorKind::Axis, "cumsum: axis 0 is out of range for shape [] of rank 0",
               [&] { g.scan(Op::ScanSum, f32({}), 0); });
  expect_error(ErrorKind::Axis, "permute: [0,0] is no order of the 2 dims of [2,3]", [&] {
    g.permute(f32({2, 3}), {0, 0});
  });
  expect_error(ErrorKind::Axis, "permute: [1,0,2] is no order of the 2 dims of [2,3]", [&] {
    g.permute(f32({2, 3}), {1, 0, 2});
  });
  expect_error(ErrorKind::Axis, "flip: axis 5 is out of range for shape [2,3] of rank 2", [&] {
    g.flip(f32({2, 3}), {5});
  });
}

TEST_F(ShapeRules, Movements) {
  expect_error(ErrorKind::Shape, "reshape: [2,3] to [4,2]: the numbers of elements differ (6 != 8)",
               [&] {
                 g.reshape(f32({2, 3}), {4, 2});
               });
  expect_error(ErrorKind::Shape,
               "expand: [2,3] to [2,3,4]: the ranks differ (2 != 3); reshape first", [&] {
                 g.expand(f32({2, 3}), {2, 3, 4});
               });
  expect_error(ErrorKind::Shape,
               "expand: [2,3] to [2,6]: dim 1 is 3 and can only stay (only 1 grows)", [&] {
                 g.expand(f32({2, 3}), {2, 6});
               });
  expect_error(ErrorKind::Shape, "broadcast: [2,3] to [3]: the rank can only grow (2 > 1)", [&] {
    g.broadcast(f32({2, 3}), {3});
  });
  expect_error(ErrorKind::Shape, "broadcast: [2] to [4,3]: dim 1 is 2 and must be 1 or 3", [&] {
    g.broadcast(f32({2}), {4, 3});
  });
  expect_error(ErrorKind::Shape,
               "pad: 1 amounts before for shape [2,3]; one for each dim is needed", [&] {
                 g.pad(f32({2, 3}), {1}, {1, 1}, zero);
               });
  expect_error(ErrorKind::Shape, "pad: 3 amounts after for shape [2,3]; one for each dim is needed",
               [&] {
                 g.pad(f32({2, 3}), {1, 1}, {1, 1, 1}, zero);
               });
  expect_error(ErrorKind::Shape, "pad: the amount -1 at dim 1 of [2,3] may be negative", [&] {
    g.pad(f32({2, 3}), {0, -1}, {0, 0}, zero);
  });
  expect_error(ErrorKind::DType, "pad: the fill is i32 and the operand f32; they must be equal",
               [&] { g.pad(f32({2}), {1}, {1}, Scalar::of(DType::I32, 0.0)); });
  expect_error(ErrorKind::Index, "shrink: 1..4 of dim 1 of [2,3] must lie in 0..3", [&] {
    g.shrink(f32({2, 3}), {0, 1}, {2, 4});
  });
  expect_error(ErrorKind::Index, "shrink: 2..1 of dim 0 of [2] must lie in 0..2",
               [&] { g.shrink(f32({2}), {2}, {1}); });
  expect_error(ErrorKind::Shape, "shrink: 1 begins for shape [2,3]; one for each dim is needed",
               [&] {
                 g.shrink(f32({2, 3}), {0}, {2, 3});
               });
  expect_error(ErrorKind::Shape, "shrink: 1 ends for shape [2,3]; one for each dim is needed", [&] {
    g.shrink(f32({2, 3}), {0, 0}, {2});
  });
  expect_error(ErrorKind::DType, "bitcast: f32 has 4 bytes and i64 has 8; sizes must be equal",
               [&] { g.bitcast(f32({2}), DType::I64); });
}

TEST_F(ShapeRules, GatherAndScatter) {
  expect_error(ErrorKind::DType, "gather: the index must be of an integer dtype, got f32",
               [&] { g.gather(f32({2}), f32({1}), 0); });
  expect_error(ErrorKind::Axis, "gather: axis 1 is out of range for shape [2] of rank 1",
               [&] { g.gather(f32({2}), i32({1}), 1); });
  expect_error(ErrorKind::Shape,
               "scatter_set: updates have shape [3,4]; data [2,3] and index [4] along axis 0 need "
               "[4,3]",
               [&] {
                 g.scatter(Op::ScatterSet, f32({2, 3}), i32({4}), f32({3, 4}), 0);
               });
  expect_error(ErrorKind::DType, "scatter_add: takes numbers, got bool (cast it first)",
               [&] { g.scatter(Op::ScatterAdd, boolean({2}), i32({1}), boolean({1}), 0); });
  expect_error(ErrorKind::DType,
               "scatter_max: dtypes differ: f32 and i32; operands of a graph node must have equal "
               "dtypes (cast them first)",
               [&] { g.scatter(Op::ScatterMax, f32({2}), i32({1}), i32({1}), 0); });
}

TEST_F(ShapeRules, SymbolicDimsAreRefusedWhereTheyProveNothing) {
  Expr n = Expr::symbol("count", 1, 64);
  expect_error(ErrorKind::Shape,
               "reshape: [count,3] to [count,4]: the numbers of elements differ (3*count != "
               "4*count)",
               [&] {
                 g.reshape(f32({n, 3}), {n, 4});
               });
  expect_error(ErrorKind::Index, "shrink: 0..8 of dim 0 of [count] must lie in 0..count",
               [&] { g.shrink(f32({n}), {0}, {8}); });
  expect_error(ErrorKind::Shape, "pad: the amount count-2 at dim 0 of [count] may be negative",
               [&] { g.pad(f32({n}), {n - 2}, {0}, zero); });
  expect_error(ErrorKind::Shape,
               "add: shapes differ: [count] and [8]; operands of a graph node must have equal "
               "shapes (broadcast them first)",
               [&] { g.binary(Op::Add, f32({n}), f32({8})); });
}

TEST_F(ShapeRules, DimsHaveNamesThatTheTextFormCanWrite) {
  for (const char* name : {"two words", "min", "by", "a..b", "end.", "1st", "né"})
    expect_error(ErrorKind::Value,
                 "input: `" + std::string(name) +
                     "` cannot be the name of a dim; letters, digits, _ and . can, other than min, "
                     "max, in, by",
                 [&] { f32({Expr::symbol(name, 1, 4)}); });
  expect_error(ErrorKind::Value,
               "reshape: `d0` cannot be the name of a dim; letters, digits, _ and . can, other "
               "than min, max, in, by",
               [&] { g.reshape(f32({4}), {Expr::axis(0, 8)}); });
  f32({Expr::symbol("block.0$rows_2", 1, 4)});
}

TEST_F(ShapeRules, AttributesThatAnOpDoesNotUseAreRefused) {
  NodeId a = f32({2});
  struct Case {
    const char* field;
    std::function<void(Attrs&)> set;
  };
  for (const Case& c : {Case{"dtype", [](Attrs& x) { x.dtype = DType::I32; }},
                        Case{"value", [](Attrs& x) { x.value = Scalar::of(DType::F32, 1.0); }},
                        Case{"shape", [](Attrs& x) { x.shape = {2}; }},
                        Case{"before", [](Attrs& x) { x.before = {2}; }},
                        Case{"after", [](Attrs& x) { x.after = {2}; }},
                        Case{"axes", [](Attrs& x) { x.axes = {0}; }},
                        Case{"name, slot, by_value", [](Attrs& x) { x.name = "a"; }}}) {
    Attrs attrs;
    c.set(attrs);
    expect_error(ErrorKind::Value,
                 "exp: has no attribute `" + std::string(c.field) + "`; leave it empty", [&] {
                   g.add(Op::Exp, {&a, 1}, attrs);
                 });
  }
}

} // namespace
} // namespace egret::ir
