#include "support/graph_runner.h"

#include <gtest/gtest.h>

#include <cmath>

namespace egret {
namespace {

using backend::reference::HostArray;
using ir::Graph;
using ir::NodeId;
using testing::values_of;
using List = std::vector<double>;

NodeId ones(Graph& g, NodeId like) {
  DType type = g[like].dtype;
  Shape shape = g[like].shape;
  return g.broadcast(g.constant(type, 1), shape);
}

std::vector<NodeId> gradients_of_sum(Graph& g, NodeId y, std::vector<NodeId> wrt) {
  NodeId seed = ones(g, y);
  return gradients(g, std::vector{y}, std::vector{seed}, wrt);
}

int count(const Graph& g, Op op, std::size_t from = 0) {
  int n = 0;
  for (auto id = static_cast<NodeId>(from); id < g.size(); ++id)
    n += g[id].op == op;
  return n;
}

NodeId matmul(Graph& g, NodeId a, NodeId b) {
  Expr m = g[a].shape[0], k = g[a].shape[1], n = g[b].shape[1];
  NodeId left = g.expand(g.reshape(a, {m, 1, k}), {m, n, k});
  NodeId right = g.expand(g.reshape(g.permute(b, {1, 0}), {1, n, k}), {m, n, k});
  return g.reduce(Op::ReduceSum, g.binary(Op::Mul, left, right), {2});
}

TEST(Gradients, OfAProductWithSeeds) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {2}), b = g.input("b", DType::F32, {2}),
         seed = g.input("s", DType::F32, {2});
  auto got =
      gradients(g, std::vector{g.binary(Op::Mul, a, b)}, std::vector{seed}, std::vector{a, b});
  std::vector<HostArray> in{
      {DType::F32, {2}, {2, 3}}, {DType::F32, {2}, {5, 7}}, {DType::F32, {2}, {1, 10}}};
  EXPECT_EQ(values_of(g, got[0], in), (List{5, 70}));
  EXPECT_EQ(values_of(g, got[1], in), (List{2, 30}));
}

// The example of docs/autodiff.md.
TEST(Gradients, OfASquareAndOfItsGradient) {
  Graph g;
  auto x = g.input("x", DType::F32, {3});
  auto y = g.binary(Op::Mul, x, x);
  auto one = g.broadcast(g.constant(DType::F32, 1), {3});
  auto dx = gradients(g, {{y}}, {{one}}, {{x}})[0];
  auto ddx = gradients(g, {{dx}}, {{one}}, {{x}})[0];
  EXPECT_EQ(g[dx].op, Op::Add);
  EXPECT_EQ(values_of(g, ddx, {HostArray(DType::F32, {3}, {1, 2, 3})}), (List{2, 2, 2}));
}

TEST(Gradients, OfAMatmulAreTwoContractions) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {2, 3}), b = g.input("b", DType::F32, {3, 4}),
         seed = g.input("s", DType::F32, {2, 4});
  NodeId y = matmul(g, a, b);
  const std::size_t before = g.size();
  auto got = gradients(g, std::vector{y}, std::vector{seed}, std::vector{a, b});
  EXPECT_EQ(count(g, Op::Mul, before), 2);
  EXPECT_EQ(count(g, Op::ReduceSum, before), 2);
  EXPECT_EQ(count(g, Op::Add, before), 0);
  EXPECT_EQ(to_string(g[got[0]].shape), "[2,3]");
  EXPECT_EQ(to_string(g[got[1]].shape), "[3,4]");
  std::vector<HostArray> in{{DType::F32, {2, 3}, {1, 2, 3, 4, 5, 6}},
                            {DType::F32, {3, 4}, {1, 0, 2, 0, 0, 1, 0, 3, 1, 1, 1, 1}},
                            {DType::F32, {2, 4}, {1, 2, 3, 4, 0, 1, 0, 1}}};
  EXPECT_EQ(values_of(g, got[0], in), (List{7, 14, 10, 0, 4, 2}));
  EXPECT_EQ(values_of(g, got[1], in), (List{1, 6, 3, 8, 2, 9, 6, 13, 3, 12, 9, 18}));
}

// Two readers of one expanded tensor: each product is summed before they are added, not after.
TEST(Gradients, AreAddedInTheSmallestSpace) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {4, 8}), w = g.input("w", DType::F32, {8, 5}),
         v = g.input("v", DType::F32, {8, 5});
  NodeId y = g.binary(Op::Mul, matmul(g, a, w), matmul(g, a, v));
  const std::size_t before = g.size();
  auto got = gradients_of_sum(g, y, {a});
  for (NodeId id = NodeId(before); id < g.size(); ++id) {
    if (g[id].op == Op::Add) {
      EXPECT_LE(element_count(g[id].shape).value(), 4 * 8) << print(g);
    }
  }
  EXPECT_EQ(to_string(g[got[0]].shape), "[4,8]");
}

// The gradient of a bias is a sum of what flows, and that of a sum's scalar factor never becomes
// large.
TEST(Gradients, ExpandedFactorsAreCombinedBeforeTheExpansion) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {64, 32}), s = g.input("s", DType::F32, {64});
  NodeId factor = g.expand(g.reshape(g.unary(Op::Exp, s), {64, 1}), {64, 32});
  NodeId y = g.reduce(Op::ReduceSum, g.binary(Op::Add, x, factor), {0, 1});
  const std::size_t before = g.size();
  gradients_of_sum(g, y, {s});
  for (NodeId id = NodeId(before); id < g.size(); ++id) {
    if (is_elementwise(g[id].op) || g[id].op == Op::ReduceSum) {
      EXPECT_LE(element_count(g[id].shape).value(), 64) << print(g);
    }
  }
  EXPECT_EQ(count(g, Op::ReduceSum, before), 0); // a sum over 32 equal terms is a product
}

TEST(Gradients, MakeNoNodeThatNothingNeeds) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {3, 4}), w = g.input("w", DType::F32, {4, 2}),
         frozen = g.input("f", DType::F32, {3, 2});
  NodeId h = g.unary(Op::Tanh, matmul(g, x, w));
  NodeId y = g.reduce(Op::ReduceSum,
                      g.binary(Op::Mul, g.unary(Op::Exp, h), g.unary(Op::Sin, frozen)), {0, 1});
  const std::size_t before = g.size();
  NodeId seed = ones(g, y);
  auto got = gradients(g, std::vector{y}, std::vector{seed}, std::vector{w});
  EXPECT_EQ(count(g, Op::Cos, before), 0); // none for the frozen operand
  EXPECT_EQ(count(g, Op::ReduceSum, before), 1);
  Graph needed = g;
  needed.outputs = {got[0], y};
  EXPECT_EQ(without_dead_code(needed).size(), g.size());
  verify(g);
}

TEST(Gradients, OfAnUnrelatedNodeAreZeros) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {2}), other = g.input("o", DType::BF16, {2, 2}),
         number = g.input("n", DType::I32, {3});
  NodeId y = g.binary(Op::Mul, x, g.cast(g.shrink(number, {0}, {2}), DType::F32));
  auto got = gradients_of_sum(g, y, {other, number, x});
  EXPECT_EQ(g[got[0]].dtype, DType::BF16);
  EXPECT_EQ(g[got[1]].dtype, DType::I32);
  std::vector<HostArray> in{
      {DType::F32, {2}, {1, 2}}, {DType::BF16, {2, 2}}, {DType::I32, {3}, {3, 4, 5}}};
  EXPECT_EQ(values_of(g, got[0], in), (List{0, 0, 0, 0}));
  EXPECT_EQ(values_of(g, got[1], in), (List{0, 0, 0}));
  EXPECT_EQ(values_of(g, got[2], in), (List{3, 4}));
}

TEST(Gradients, MayBeTakenForInnerNodesAndOutputsThemselves) {
  Graph g;
  NodeId x = g.input("x", DType::F64, {2});
  NodeId h = g.unary(Op::Exp, x), y = g.binary(Op::Mul, h, h);
  auto got = gradients_of_sum(g, y, {h, y, x, h});
  std::vector<HostArray> in{{DType::F64, {2}, {0, 0}}};
  EXPECT_EQ(values_of(g, got[0], in), (List{2, 2}));
  EXPECT_EQ(values_of(g, got[1], in), (List{1, 1}));
  EXPECT_EQ(values_of(g, got[2], in), (List{2, 2}));
  EXPECT_EQ(got[3], got[0]);
}

TEST(Gradients, OfSeveralOutputsAdd) {
  Graph g;
  NodeId x = g.input("x", DType::F64, {1});
  NodeId y = g.binary(Op::Mul, x, x), z = g.unary(Op::Sin, x);
  NodeId one = ones(g, y), two = g.broadcast(g.constant(DType::F64, 2), {1});
  auto got = gradients(g, std::vector{y, z, y}, std::vector{one, two, two}, std::vector{x});
  EXPECT_NEAR(values_of(g, got[0], {HostArray(DType::F64, {1}, {3})})[0], 18 + 2 * std::cos(3.0),
              1e-12);
}

TEST(Gradients, OfGradientsOfGradients) {
  Graph g;
  NodeId x = g.input("x", DType::F64, {1});
  NodeId y = x;
  for (int i = 0; i < 4; ++i)
    y = g.binary(Op::Mul, y, x); // x^5
  for (int i = 0; i < 3; ++i)
    y = gradients_of_sum(g, y, {x})[0];
  EXPECT_EQ(values_of(g, y, {HostArray(DType::F64, {1}, {2})}), List{60 * 4});
}

TEST(Gradients, KeepTheDtypeOfLowPrecisionInputs) {
  Graph g;
  NodeId w = g.input("w", DType::BF16, {2}), x = g.input("x", DType::F32, {2});
  NodeId y = g.binary(Op::Mul, g.cast(w, DType::F32), x);
  auto got = gradients_of_sum(g, y, {w, x});
  EXPECT_EQ(g[got[0]].dtype, DType::BF16);
  std::vector<HostArray> in{{DType::BF16, {2}, {1, 2}}, {DType::F32, {2}, {3.001, 4}}};
  EXPECT_EQ(values_of(g, got[0], in), (List{3, 4}));
}

TEST(Gradients, WorkWithSymbolicDims) {
  Graph g;
  Expr n = Expr::symbol("n", 1, 64);
  NodeId x = g.input("x", DType::F64, {n, 2});
  NodeId mean = g.reduce(Op::ReduceSum, x, {0});
  NodeId centred = g.binary(Op::Mul, x, g.expand(g.reshape(mean, {1, 2}), {n, 2}));
  NodeId y = g.reduce(
      Op::ReduceProd,
      g.scan(Op::ScanMax, g.pad(centred, {0, 1}, {0, 0}, Scalar::of(DType::F64, 1.0)), 0), {1});
  auto got = gradients_of_sum(g, y, {x});
  EXPECT_EQ(g[got[0]].shape, g[x].shape);
  List values = values_of(g, got[0], {HostArray(DType::F64, {3, 2}, {1, 2, 3, 4, 5, 6})});
  EXPECT_EQ(values.size(), 6u);
}

// A softmax is recognized by the compiler when its backward pass is plain: no guard against an
// overflow that cannot be.
TEST(Gradients, OfASoftmaxHaveNoGuardOnTheExponential) {
  for (bool negated_before_expansion : {false, true}) {
    Graph g;
    const Shape shape{8, 16}, column{8, 1};
    NodeId x = g.input("x", DType::F32, shape);
    NodeId top = g.unary(Op::StopGradient, g.reshape(g.reduce(Op::ReduceMax, x, {1}), column));
    auto negated = [&](NodeId a) {
      const Shape own = g[a].shape;
      return g.binary(Op::Mul, a, g.broadcast(g.constant(DType::F32, -1), own));
    };
    NodeId shift =
        negated_before_expansion ? g.expand(negated(top), shape) : negated(g.expand(top, shape));
    NodeId e = g.unary(Op::Exp, g.binary(Op::Add, x, shift));
    NodeId total = g.expand(g.reshape(g.reduce(Op::ReduceSum, e, {1}), column), shape);
    NodeId weights = g.input("w", DType::F32, shape);
    NodeId y = g.binary(Op::Mul, g.binary(Op::Div, e, total), weights);
    const std::size_t before = g.size();
    gradients_of_sum(g, y, {x});
    for (NodeId id = NodeId(before); id < g.size(); ++id) {
      if (g[id].op == Op::Select || g[id].op == Op::Lt) {
        EXPECT_LE(element_count(g[id].shape).value(), 8) << print(g);
      }
    }
  }
}

// Each gather of a value gives it a scatter; they go to one place, one behind the other.
TEST(Gradients, OfSeveralGathersOfAValueAddToOneAnother) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {2, 3}), flat = g.reshape(x, {6});
  const NodeId i = g.input("i", DType::I64, {2}), j = g.input("j", DType::I64, {2});
  const NodeId y = g.binary(Op::Add, g.gather(flat, i, 0), g.gather(flat, j, 0));
  const std::size_t before = g.size();
  const NodeId dx =
      gradients_of_sum(g, g.binary(Op::Mul, y, g.gather(g.reshape(x, {6}), j, 0)), {x})[0];
  g.outputs = {dx};
  const Graph needed = ir::without_dead_code(g);
  int into_zeros = 0;
  for (NodeId id = 0; id < needed.size(); ++id)
    if (needed[id].op == Op::ScatterAdd)
      into_zeros += needed[needed[id].inputs[0]].op != Op::ScatterAdd;
  EXPECT_EQ(into_zeros, 1) << print(needed);
  EXPECT_EQ(count(g, Op::ScatterAdd, before), 2);
  const std::vector<HostArray> in{{DType::F32, {2, 3}, {1, 2, 3, 4, 5, 6}},
                                  {DType::I64, {2}, {1, 1}},
                                  {DType::I64, {2}, {4, 0}}};
  // (x[1] + x[4]) x[4] + (x[1] + x[0]) x[0]
  EXPECT_EQ(values_of(g, dx, in), (List{4, 6, 0, 0, 12, 0}));
}

} // namespace
} // namespace egret
