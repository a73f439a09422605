// Slices of joined values: when they are taken of a piece, and padded slices that are joined again.
#include "compiler/resolve_slices.h"

#include "backend/reference/reference.h"
#include "compiler/boxes.h"
#include "compiler/rejoin_slices.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace egret::compiler {
namespace {

using ir::Graph;
using ir::NodeId;

void expect_same(const Graph& graph, const Graph& changed) {
  ir::verify(changed);
  const auto inputs = testing::random_inputs(graph, 3, {.special = false});
  const auto expected = backend::reference::expect(graph, inputs);
  const auto actual = backend::reference::execute(changed, inputs);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t o = 0; o < actual.size(); ++o) {
    const auto result = backend::reference::compare(actual[o], expected[o], "output");
    EXPECT_TRUE(result.ok) << result.message;
  }
}

std::size_t count(const Graph& g, Op op) {
  std::size_t found = 0;
  for (NodeId id = 0; id < g.size(); ++id)
    found += g[id].op == op;
  return found;
}

/// a, of 3 rows, before b, of 4 rows: [7, 5].
NodeId joined(Graph& g, NodeId a, NodeId b) {
  const NodeId rows = g.reshape(g.iota(7), {7, 1}),
               bound = g.broadcast(g.constant(DType::I64, 3), {7, 1});
  const NodeId first = g.expand(g.binary(Op::Lt, rows, bound), {7, 5});
  const Scalar zero = Scalar::of(DType::F32, 0.0);
  return g.select(first, g.pad(a, {0, 0}, {4, 0}, zero), g.pad(b, {3, 0}, {0, 0}, zero));
}

struct Rows {
  Graph graph;
  NodeId a, b, all;
  Rows() {
    a = graph.input("a", DType::F32, {3, 5});
    b = graph.input("b", DType::F32, {4, 5});
    all = joined(graph, a, b);
  }
  NodeId rows(NodeId of, std::int64_t begin, std::int64_t end) {
    return graph.shrink(of, {begin, 0}, {end, 5});
  }
};

TEST(ResolveSlices, OfAConcatenationIsOfThePieceThatLiesThere) {
  Rows r;
  Graph& g = r.graph;
  g.outputs = {r.rows(r.all, 1, 3), r.rows(r.all, 3, 4), r.rows(r.all, 4, 7)};
  const Graph resolved = resolve_slices(g);
  EXPECT_EQ(count(resolved, Op::Select) + count(resolved, Op::Pad), 0u) << ir::print(resolved);
  expect_same(g, resolved);
}

TEST(ResolveSlices, GoThroughElementsAndMovements) {
  Rows r;
  Graph& g = r.graph;
  const NodeId doubled = g.binary(Op::Add, r.all, r.all);
  const NodeId moved = g.reshape(g.permute(doubled, {1, 0}), {5, 1, 7});
  g.outputs = {g.reshape(g.shrink(moved, {0, 0, 5}, {5, 1, 6}), {5})};
  const Graph resolved = resolve_slices(g);
  EXPECT_EQ(count(resolved, Op::Select) + count(resolved, Op::Pad), 0u) << ir::print(resolved);
  expect_same(g, resolved);
}

TEST(ResolveSlices, OfPaddingAreItsFill) {
  Graph g;
  const NodeId a = g.input("a", DType::F32, {3});
  const NodeId padded = g.pad(a, {2}, {4}, Scalar::of(DType::F32, 7.0));
  g.outputs = {g.shrink(padded, {0}, {2}), g.shrink(padded, {5}, {9}), g.shrink(padded, {3}, {5})};
  const Graph resolved = resolve_slices(g);
  EXPECT_EQ(count(resolved, Op::Pad), 0u) << ir::print(resolved);
  expect_same(g, resolved);
}

TEST(ResolveSlices, AcrossPiecesOrOfOtherValuesStay) {
  Rows r;
  Graph& g = r.graph;
  const NodeId data = g.binary(Op::Lt, r.b, g.broadcast(g.constant(DType::F32, 0.5), {4, 5}));
  const NodeId chosen = g.select(data, r.b, g.unary(Op::Tanh, r.b));
  g.outputs = {r.rows(r.all, 2, 4), g.shrink(chosen, {1, 0}, {2, 5})};
  EXPECT_EQ(ir::print(resolve_slices(g)), ir::print(g));
}

TEST(ResolveSlices, StayWhereManyOperationsWouldBeMadeAgain) {
  Rows r;
  Graph& g = r.graph;
  NodeId all = r.all;
  for (int i = 0; i < 20; ++i)
    all = g.unary(Op::Tanh, all);
  g.outputs = {r.rows(all, 0, 1)};
  EXPECT_EQ(ir::print(resolve_slices(g)), ir::print(g));
}

TEST(ResolveSlices, CountWhatIsUsedTwiceAtEachOfManyLevels) {
  Rows r;
  Graph& g = r.graph;
  NodeId all = r.all;
  for (int i = 0; i < 70; ++i) // 2^70 operations, if each is repeated for each of its uses
    all = g.binary(Op::Mul, all, all);
  g.outputs = {r.rows(all, 0, 1)};
  EXPECT_EQ(ir::print(resolve_slices(g)), ir::print(g));
}

TEST(Boxes, KnowComparisonsOfIndices) {
  Graph g;
  const NodeId twice = g.binary(Op::Mul, g.iota(8), g.broadcast(g.constant(DType::I64, 2), {8}));
  const NodeId below = g.binary(Op::Lt, twice, g.broadcast(g.constant(DType::I64, 7), {8}));
  EXPECT_EQ(known_condition(g, below, {{0, 4}}), true);
  EXPECT_EQ(known_condition(g, below, {{4, 8}}), false);
  EXPECT_EQ(known_condition(g, below, {{3, 5}}), std::nullopt);
  const NodeId same = g.binary(Op::Eq, twice, g.broadcast(g.constant(DType::I64, 6), {8}));
  EXPECT_EQ(known_condition(g, same, {{3, 4}}), true);
  EXPECT_EQ(known_condition(g, same, {{0, 3}}), false);
}

/// The sum of rows of a value [9, 5] at `indices`, each in the row of [12, 5] that `rows` says.
Graph rejoined(const std::vector<std::int64_t>& indices, const std::vector<std::int64_t>& rows) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {9, 5});
  NodeId sum = g.input("y", DType::F32, {5, 12});
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const NodeId row = g.permute(g.shrink(x, {indices[i], 0}, {indices[i] + 1, 5}), {1, 0});
    sum = g.binary(Op::Add, sum,
                   g.pad(row, {0, rows[i]}, {0, 11 - rows[i]}, Scalar::of(DType::F32, 0.0)));
  }
  g.outputs = {sum};
  return g;
}

TEST(RejoinSlices, NeighboursAreTheValueAgain) {
  const Graph g = rejoined({4, 2, 3, 5}, {6, 4, 5, 7}), whole = rejoin_slices(g);
  EXPECT_EQ(count(whole, Op::Add), 1u) << ir::print(whole);
  EXPECT_EQ(count(whole, Op::Pad), 1u);
  expect_same(g, whole);
}

TEST(RejoinSlices, OnesFurtherApartAreRunsOfTheirOwn) {
  const Graph g = rejoined({0, 1, 5, 6, 8}, {0, 1, 5, 6, 2}), whole = rejoin_slices(g);
  EXPECT_EQ(count(whole, Op::Add), 3u) << ir::print(whole);
  expect_same(g, whole);
  const Graph back = rejoined({3, 2, 1}, {4, 5, 6}); // in the other order
  EXPECT_EQ(ir::print(rejoin_slices(back)), ir::print(back));
}

} // namespace
} // namespace egret::compiler
