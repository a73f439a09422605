#include "support/graph_runner.h"

#include <gtest/gtest.h>

#include <functional>

namespace egret {
namespace {

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

TEST(GradientErrors, OutputsSeedsAndNodes) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {2}), i = g.input("i", DType::I32, {2}),
         d = g.input("d", DType::F64, {2}), s = g.input("s", DType::F32, {3});
  auto run = [&](std::vector<NodeId> outputs, std::vector<NodeId> seeds, std::vector<NodeId> wrt) {
    return [&g, outputs, seeds, wrt] { gradients(g, outputs, seeds, wrt); };
  };
  expect_error(ErrorKind::Value, "gradients: 1 outputs and 0 seeds; each output needs one",
               run({x}, {}, {x}));
  expect_error(ErrorKind::Value, "gradients: node %99 does not exist; the graph has 4 nodes",
               run({x}, {x}, {99}));
  expect_error(ErrorKind::DType,
               "gradients: output 0 is i32; only floats have gradients (cast it first)",
               run({i}, {i}, {x}));
  expect_error(ErrorKind::DType, "gradients: seed 0 is f64, its output f32; they must be equal",
               run({x}, {d}, {x}));
  expect_error(ErrorKind::Shape,
               "gradients: seed 0 has shape [3], its output [2]; they must be equal",
               run({x}, {s}, {x}));
  EXPECT_EQ(g.size(), 4u);
}

TEST(GradcheckErrors, NeedF64) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {1}), d = g.input("d", DType::F64, {1});
  g.outputs = {x};
  std::vector<std::vector<double>> in{{1}, {1}};
  expect_error(ErrorKind::DType, "gradcheck: output 0 is f32; differences need f64",
               [&] { gradcheck(g, in, testing::by_reference()); });
  g.outputs = {d};
  expect_error(ErrorKind::DType, "gradcheck: input 0 `x` is f32; differences need f64",
               [&] { gradcheck(g, in, testing::by_reference(), {0}); });
  expect_error(ErrorKind::Value, "gradcheck: input 2 does not exist; the graph has 2",
               [&] { gradcheck(g, in, testing::by_reference(), {2}); });
}

} // namespace
} // namespace egret
