// Graphs of ten thousand nodes and more: every walk is linear and none recurses.
#include "egret/passes.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;

/// Layers of a matrix product, a row maximum and an exponential: 18 nodes each.
Graph deep_network(int layers, Expr rows) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {rows, 64});
  for (int layer = 0; layer < layers; ++layer) {
    NodeId w = g.input("w" + std::to_string(layer), DType::F32, {64, 64});
    NodeId a = g.expand(g.reshape(x, {rows, 1, 64}), {rows, 64, 64});
    NodeId b = g.expand(g.reshape(g.permute(w, {1, 0}), {1, 64, 64}), {rows, 64, 64});
    NodeId c = g.reduce(Op::ReduceSum, g.binary(Op::Mul, a, b), {2});
    NodeId top = g.broadcast(g.reshape(g.reduce(Op::ReduceMax, c, {1}), {rows, 1}), {rows, 64});
    NodeId factor = g.broadcast(g.constant(DType::F32, -1 - 0.001 * layer), {rows, 64});
    x = g.binary(Op::Add, g.unary(Op::Exp, g.binary(Op::Add, c, g.binary(Op::Mul, top, factor))),
                 x);
  }
  g.outputs = {x};
  return g;
}

TEST(LargeGraph, TenThousandNodesPrintParseNormalizeAndMatch) {
  for (const Expr& rows : {Expr(8), Expr::symbol("rows", 1, 64)}) {
    Graph g = deep_network(560, rows);
    EXPECT_GT(g.size(), 10000u);
    std::string text = print(g);
    Graph back = ir::parse_graph(text);
    EXPECT_EQ(canonical_hash(back), canonical_hash(g));
    EXPECT_EQ(print(passes::normalize()(back)), print(ir::without_dead_code(g)));
    using namespace pattern;
    Pattern product = node(Op::Mul, {any("a").shape("MNK").broadcast("N").varies("K"),
                                     any("b").shape("MNK").broadcast("M").varies("NK")});
    Pattern matmul = node(Op::ReduceSum, {product.shape("MNK").single_use()}).over("K");
    EXPECT_EQ(find(g, matmul).size(), 560u);
  }
}

TEST(LargeGraph, AChainOfAHundredThousandNodesNeedsNoStack) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {2});
  for (int i = 0; i < 100000; ++i)
    x = g.unary(i % 2 == 0 ? Op::Sin : Op::Cos, x);
  g.outputs = {x};
  EXPECT_EQ(ir::without_dead_code(g).size(), g.size());
  EXPECT_EQ(canonical_hash(ir::parse_graph(print(g))), canonical_hash(g));
}

} // namespace
} // namespace egret
