// Building graphs: hash-consing, shapes and dtypes, canonical form.
#include "egret/ir.h"

#include <gtest/gtest.h>

namespace egret::ir {
namespace {

Shape shape_of(const Graph& g, NodeId id) {
  return g[id].shape;
}

TEST(Graph, EqualNodesAreOne) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {2, 3});
  NodeId x = g.binary(Op::Add, a, a);
  EXPECT_EQ(g.binary(Op::Add, a, a), x);
  EXPECT_EQ(g.constant(DType::F32, 2), g.constant(DType::F32, 2));
  EXPECT_NE(g.constant(DType::F32, 2), g.constant(DType::F64, 2));
  EXPECT_NE(g.constant(DType::F32, 0.0), g.constant(DType::F32, -0.0));
  EXPECT_NE(g.reduce(Op::ReduceSum, a, {0}), g.reduce(Op::ReduceSum, a, {1}));
  EXPECT_NE(g.input("a", DType::F32, {2, 3}), a) << "inputs are distinct by slot";
  verify(g);
}

TEST(Graph, BuildersReturnTheOperandWhereNothingChanges) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {2, 3});
  EXPECT_EQ(g.cast(a, DType::F32), a);
  EXPECT_EQ(g.bitcast(a, DType::F32), a);
  EXPECT_EQ(g.reshape(a, {2, 3}), a);
  EXPECT_EQ(g.permute(a, {0, 1}), a);
  EXPECT_EQ(g.expand(a, {2, 3}), a);
  EXPECT_EQ(g.pad(a, {0, 0}, {0, 0}, Scalar::of(DType::F32, 1.0)), a);
  EXPECT_EQ(g.shrink(a, {0, 0}, {2, 3}), a);
  EXPECT_EQ(g.flip(a, {}), a);
  EXPECT_EQ(g.reduce(Op::ReduceSum, a, {}), a);
  EXPECT_EQ(g.broadcast(a, {2, 3}), a);
}

TEST(Graph, InfersShapesAndDTypes) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {2, 3, 4}), i = g.input("i", DType::I32, {5, 6});
  EXPECT_EQ(shape_of(g, g.reduce(Op::ReduceSum, a, {2, 0})), (Shape{3}));
  NodeId arg = g.reduce(Op::ReduceArgMax, a, {1});
  EXPECT_EQ(shape_of(g, arg), (Shape{2, 4}));
  EXPECT_EQ(g[arg].dtype, DType::I64);
  EXPECT_EQ(shape_of(g, g.scan(Op::ScanSum, a, 1)), (Shape{2, 3, 4}));
  EXPECT_EQ(shape_of(g, g.gather(a, i, 1)), (Shape{2, 5, 6, 4}));
  EXPECT_EQ(shape_of(g, g.permute(a, {2, 0, 1})), (Shape{4, 2, 3}));
  EXPECT_EQ(shape_of(g, g.reshape(a, {6, 4})), (Shape{6, 4}));
  Scalar zero = Scalar::of(DType::F32, 0.0);
  EXPECT_EQ(shape_of(g, g.pad(a, {1, 0, 2}, {0, 0, 3}, zero)), (Shape{3, 3, 9}));
  EXPECT_EQ(shape_of(g, g.shrink(a, {0, 1, 2}, {2, 1, 4})), (Shape{2, 0, 2}));
  EXPECT_EQ(g[g.binary(Op::Lt, a, a)].dtype, DType::Bool);
  EXPECT_EQ(g[g.cast(a, DType::BF16)].dtype, DType::BF16);
  NodeId mask = g.binary(Op::Eq, a, a);
  EXPECT_EQ(g[g.select(mask, a, a)].dtype, DType::F32);
  NodeId updates = g.input("u", DType::F32, {2, 5, 6, 4});
  EXPECT_EQ(shape_of(g, g.scatter(Op::ScatterAdd, a, i, updates, 1)), (Shape{2, 3, 4}));
  EXPECT_EQ(shape_of(g, g.iota(7)), (Shape{7}));
  EXPECT_EQ(shape_of(g, g.broadcast(g.input("r", DType::F32, {3, 1}), {2, 3, 4})),
            (Shape{2, 3, 4}));
  verify(g);
}

TEST(Graph, AxesOfReductionsAndFlipsComeInAnyOrder) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {2, 3, 4});
  EXPECT_EQ(g.reduce(Op::ReduceSum, a, {2, 0}), g.reduce(Op::ReduceSum, a, {0, 2}));
  EXPECT_EQ(g.flip(a, {2, 0}), g.flip(a, {0, 2}));
}

TEST(Graph, SymbolicDimsFlowThroughEveryRule) {
  Expr n = Expr::symbol("rows", 1, 64);
  Graph g;
  NodeId a = g.input("a", DType::F32, {n, 6});
  EXPECT_EQ(shape_of(g, g.reshape(a, {n * 2, 3})), (Shape{n * 2, 3}));
  EXPECT_EQ(shape_of(g, g.reshape(a, {n * 6})), (Shape{n * 6}));
  EXPECT_EQ(shape_of(g, g.reduce(Op::ReduceMax, a, {1})), (Shape{n}));
  EXPECT_EQ(shape_of(g, g.pad(a, {n, 0}, {1, 0}, Scalar::of(DType::F32, 0.0))),
            (Shape{n * 2 + 1, 6}));
  EXPECT_EQ(shape_of(g, g.shrink(a, {n - 1, 0}, {n, 6})), (Shape{1, 6}));
  EXPECT_EQ(shape_of(g, g.broadcast(g.iota(n), {4, n})), (Shape{4, n}));
  NodeId square = g.binary(Op::Mul, g.broadcast(g.reshape(g.iota(n), {n, 1}), {n, n}),
                           g.broadcast(g.iota(n), {n, n}));
  EXPECT_EQ(shape_of(g, square), (Shape{n, n}));
  verify(g);
}

TEST(Graph, DeadCodeGoesAndInputsStay) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {2}), unread = g.input("unread", DType::F32, {3});
  NodeId x = g.unary(Op::Exp, a);
  g.unary(Op::Log, unread);
  g.outputs = {x, x};
  Graph live = without_dead_code(g);
  EXPECT_EQ(print(live), "%0: f32[2] = input \"a\"\n%1: f32[3] = input \"unread\"\n"
                         "%2: f32[2] = exp(%0)\noutputs %2, %2\n");
}

Graph sum_of_products(bool noise, bool other_order) {
  Graph g;
  NodeId a = g.input(noise ? "left" : "a", DType::F32, {4}), b = g.input("b", DType::F32, {4});
  if (noise)
    g.unary(Op::Sin, b);
  NodeId first, second;
  if (other_order) {
    second = g.unary(Op::Exp, b);
    first = g.unary(Op::Sqrt, a);
  } else {
    first = g.unary(Op::Sqrt, a);
    second = g.unary(Op::Exp, b);
  }
  g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Mul, first, second), {0})};
  return g;
}

TEST(Graph, CanonicalHashIsOfWhatIsComputed) {
  std::uint64_t hash = canonical_hash(sum_of_products(false, false));
  EXPECT_EQ(canonical_hash(sum_of_products(true, false)), hash) << "dead nodes, names";
  EXPECT_EQ(canonical_hash(sum_of_products(false, true)), hash) << "node numbers";
  EXPECT_EQ(print(without_dead_code(sum_of_products(false, true))),
            print(without_dead_code(sum_of_products(false, false))));

  auto changed = [](auto change) {
    Graph g = sum_of_products(false, false);
    change(g);
    return canonical_hash(g);
  };
  EXPECT_NE(changed([](Graph& g) { g.outputs.push_back(g.outputs[0]); }), hash);
  EXPECT_NE(changed([](Graph& g) { g.input("c", DType::F32, {1}); }), hash);
  EXPECT_NE(changed([](Graph& g) { g.outputs[0] = g.unary(Op::Exp, g.outputs[0]); }), hash);
}

TEST(Graph, CanonicalHashIsTheSameInEveryProcess) {
  // A database of tuned kernels outlives the process that wrote it.
  EXPECT_EQ(canonical_hash(sum_of_products(false, false)), 13926958295060267534u)
      << "changes with the op table or the hash: old databases are then not found, which is right";
}

TEST(Graph, ViewsOfMovementsAreTheirIndexMaps) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {2, 3});
  EXPECT_EQ(view_of(g, g.permute(a, {1, 0})),
            IndexMap::permute({2, 3}, std::vector<std::int64_t>{1, 0}));
  NodeId wide = g.expand(g.reshape(a, {2, 1, 3}), {2, 5, 3});
  EXPECT_EQ(view_of(g, wide), IndexMap::expand({2, 1, 3}, {2, 5, 3}));
  NodeId padded = g.pad(a, {1, 0}, {0, 0}, Scalar::of(DType::F32, 7.0));
  EXPECT_EQ(view_of(g, padded).holes.size(), 1u);
  EXPECT_THROW(view_of(g, a), InternalError);
}

TEST(Graph, VerifyFindsAnOutputThatDoesNotExist) {
  Graph g;
  g.input("a", DType::F32, {2});
  g.outputs = {7};
  EXPECT_THROW(verify(g), InternalError);
}

TEST(Graph, TheNumberOfOperandsAndTheirPlacesAreChecked) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {2});
  EXPECT_THROW(g.unary(Op::Add, a), Error);
  EXPECT_THROW(g.unary(Op::Exp, 99), Error);
  EXPECT_THROW(g.cast(99, DType::I32), Error);
  EXPECT_THROW(g.broadcast(99, {2}), Error);
}

} // namespace
} // namespace egret::ir
