#include "backend/reference/reference.h"

#include <gtest/gtest.h>

#include <functional>

namespace egret {
namespace {

using namespace backend::reference;
using ir::Graph;
using ir::NodeId;

void expect_error(ErrorKind kind, const std::string& message, const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind);
    EXPECT_EQ(e.what(), message);
  }
}

struct TwoInputs {
  Graph g;
  Expr n = Expr::symbol("n", 2, 64, 2);

  TwoInputs() {
    NodeId x = g.input("x", DType::F32, {n, 3});
    g.input("y", DType::I64, {n + 1, n});
    g.outputs = {x};
  }
  std::function<void()> run(std::vector<HostArray> inputs) {
    return [this, inputs] { execute(g, inputs); };
  }
};

TEST(ReferenceErrors, InputsThatDoNotFit) {
  TwoInputs t;
  const HostArray x(DType::F32, {4, 3}), y(DType::I64, {5, 4});
  EXPECT_NO_THROW(t.run({x, y})());
  expect_error(ErrorKind::Value, "reference: the graph has 2 inputs, 1 are given", t.run({x}));
  expect_error(ErrorKind::DType, "input `x` (slot 0): is f64, the graph needs f32",
               t.run({HostArray(DType::F64, {4, 3}), y}));
  expect_error(ErrorKind::Shape, "input `x` (slot 0): has shape [4], the graph needs [n,3]",
               t.run({HostArray(DType::F32, {4}), y}));
  expect_error(ErrorKind::Shape, "input `x` (slot 0) of shape [4,2], dim 1 is 2; it must be 3",
               t.run({HostArray(DType::F32, {4, 2}), y}));
  expect_error(ErrorKind::Shape,
               "input `y` (slot 1) of shape [5,6], dim 1: dim `n` is 6 here and 4 in input `x` "
               "(slot 0) of shape [4,3], dim 0",
               t.run({x, HostArray(DType::I64, {5, 6})}));
  expect_error(ErrorKind::Shape,
               "input `y` (slot 1) of shape [7,4], dim 0 is 7; it must be n+1 = 5",
               t.run({x, HostArray(DType::I64, {7, 4})}));
  expect_error(ErrorKind::Shape,
               "input `x` (slot 0) of shape [66,3], dim 0: dim `n` is 66; it must lie in 2..64",
               t.run({HostArray(DType::F32, {66, 3}), y}));
  expect_error(ErrorKind::Shape,
               "input `x` (slot 0) of shape [5,3], dim 0: dim `n` is 5; it must be a multiple of 2",
               t.run({HostArray(DType::F32, {5, 3}), y}));
}

TEST(ReferenceErrors, ASizeThatNoInputHas) {
  Graph g;
  Expr n = Expr::symbol("n", 1, 64);
  g.outputs = {g.iota(n)};
  expect_error(ErrorKind::Shape, "dim `n` has no value: no input has it as a dim of its own",
               [&] { execute(g, {}); });
}

TEST(ReferenceErrors, ArraysThatCannotBe) {
  expect_error(ErrorKind::Shape, "array: 3 values for shape [2,2] with 4 elements", [] {
    HostArray(DType::F32, {2, 2}, {1, 2, 3});
  });
  expect_error(ErrorKind::Shape, "array: shape [2,-1] is not possible", [] {
    HostArray(DType::F32, {2, -1});
  });
  expect_error(ErrorKind::Shape, "array: shape [4294967296,4294967296] is not possible", [] {
    HostArray(DType::F32, {std::int64_t{1} << 32, std::int64_t{1} << 32});
  });
}

} // namespace
} // namespace egret
