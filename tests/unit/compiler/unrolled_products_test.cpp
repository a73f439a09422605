// Products of slices of one value by one factor, in the steps of a loop: when they become one.
#include "compiler/unrolled_products.h"

#include "backend/reference/reference.h"
#include "compiler/compile.h"
#include "compiler/rejoin_slices.h"
#include "compiler/resolve_slices.h"
#include "egret/passes.h"
#include "support/null_device.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"
#include "support/recurrent_graphs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace egret::compiler {
namespace {

using ir::Graph;
using ir::NodeId;
using testing::RecurrentKind;
using testing::RecurrentProgram;

std::size_t products_of(const Graph& g) {
  std::size_t found = 0;
  for (NodeId id = 0; id < g.size(); ++id)
    found += g[id].op == Op::ReduceSum;
  return found;
}

/// What a loop multiplies, and in which order.
struct Loop {
  std::vector<std::int64_t> indices;
  std::int64_t rows = 3, depth = 5, columns = 4, axis = 0;
  bool follows = true;   ///< a step reads what the one before it made
  bool on_right = false; ///< the slice is the right factor
  bool transposed = false;
  DType dtype = DType::F32;
  bool widened = false; ///< products are those of f32
};

Graph graph_of(const Loop& loop) {
  Graph g;
  constexpr std::int64_t kLength = 12;
  Shape all{loop.rows, loop.depth}, box{loop.rows, loop.columns, loop.depth};
  if (loop.transposed)
    std::swap(all[0], all[1]);
  all.insert(all.begin() + loop.axis, Expr(kLength));
  const NodeId x = g.input("x", loop.dtype, all);
  const auto factor = [&](NodeId id) { return loop.widened ? g.cast(id, DType::F32) : id; };
  const NodeId w = g.expand(g.reshape(factor(g.input("w", loop.dtype, {loop.columns, loop.depth})),
                                      {1, loop.columns, loop.depth}),
                            box);
  NodeId h = g.input("h", loop.widened ? DType::F32 : loop.dtype, {loop.rows, loop.columns});
  for (const std::int64_t index : loop.indices) {
    std::vector<Expr> begin(3, Expr(0)), end(all.begin(), all.end());
    begin[std::size_t(loop.axis)] = index;
    end[std::size_t(loop.axis)] = index + 1;
    NodeId slice = factor(g.shrink(x, begin, end));
    if (loop.transposed) {
      slice = g.reshape(slice, {loop.depth, loop.rows});
      slice = g.permute(slice, {1, 0});
    }
    slice = g.expand(g.reshape(slice, {loop.rows, 1, loop.depth}), box);
    const NodeId product =
        g.reduce(Op::ReduceSum,
                 loop.on_right ? g.binary(Op::Mul, w, slice) : g.binary(Op::Mul, slice, w), {2});
    if (loop.follows) {
      h = g.unary(Op::Tanh, g.binary(Op::Add, h, product));
    } else {
      g.outputs.push_back(g.unary(Op::Tanh, product));
    }
  }
  if (loop.follows)
    g.outputs = {h};
  return g;
}

void expect_same(const Graph& graph, const Graph& joined) {
  auto inputs = testing::random_inputs(graph, 3);
  const auto expected = backend::reference::expect(graph, inputs);
  testing::NullDevice device;
  KernelCache cache;
  Options options;
  options.verify_passes = true;
  const auto actual =
      testing::run_plan(compile_graph(joined, options, device, cache), joined, inputs);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t o = 0; o < actual.size(); ++o) {
    const auto result = backend::reference::compare(actual[o], expected[o], "output");
    EXPECT_TRUE(result.ok) << result.message;
  }
}

TEST(UnrolledProducts, OfStepsBecomeOne) {
  for (const Loop& loop :
       {Loop{.indices = {0, 1, 2, 3, 4}}, Loop{.indices = {7, 6, 5, 4, 3}},
        Loop{.indices = {1, 3, 5, 7, 9}}, Loop{.indices = {2, 0, 3, 1}, .axis = 1},
        Loop{.indices = {4, 5, 6, 7}, .axis = 2},
        Loop{.indices = {0, 1, 2, 3}, .axis = 1, .on_right = true},
        Loop{.indices = {0, 1, 2, 3}, .axis = 2, .transposed = true},
        Loop{.indices = {0, 1, 2, 3}, .dtype = DType::BF16},
        Loop{.indices = {0, 1, 2, 3}, .dtype = DType::BF16, .widened = true}}) {
    const Graph graph = graph_of(loop), joined = join_unrolled_products(graph);
    EXPECT_EQ(products_of(joined), 1u) << print(joined);
    expect_same(graph, joined);
  }
}

TEST(UnrolledProducts, OtherProductsStay) {
  for (const Loop& loop :
       {Loop{.indices = {0, 1, 2}}, Loop{.indices = {0, 3, 6, 9}},
        Loop{.indices = {0, 1, 2, 3}, .follows = false},
        Loop{.indices = {0, 1, 2, 3}, .rows = 256, .depth = 512, .columns = 256}}) {
    const Graph graph = graph_of(loop);
    EXPECT_EQ(print(join_unrolled_products(graph)), print(graph));
  }
}

TEST(UnrolledProducts, OfRecurrentCellsLeaveTheLoop) {
  for (const RecurrentKind kind : {RecurrentKind::Tanh, RecurrentKind::Lstm, RecurrentKind::Gru})
    for (const bool gradient : {false, true}) {
      const RecurrentProgram p{.kind = kind, .steps = 5, .inputs = 7, .gradient = gradient};
      const Graph graph = graph_of(p), joined = join_unrolled_products(graph);
      EXPECT_EQ(products_of(joined) + 4, products_of(graph)) << p.name();
      expect_same(graph, joined);
    }
}

/// What the compiler makes of a graph up to there.
Graph joined_as_compiled(const Graph& graph) {
  return rejoin_slices(join_unrolled_products(resolve_slices(passes::normalize()(graph))));
}

TEST(UnrolledProducts, OfGradientsLeaveTheLoop) {
  // A step more has the products more that need the step before: one forward and one backward.
  for (const RecurrentKind kind : {RecurrentKind::Tanh, RecurrentKind::Lstm}) {
    std::vector<std::size_t> products;
    for (const std::int64_t steps : {6, 7, 8}) {
      const Graph graph =
          graph_of(RecurrentProgram{.kind = kind, .steps = steps, .inputs = 7, .gradient = true});
      const Graph joined = joined_as_compiled(graph);
      products.push_back(products_of(joined));
      expect_same(graph, joined);
    }
    EXPECT_EQ(products[1] - products[0], 2u);
    EXPECT_EQ(products[2] - products[1], 2u);
  }
}

/// h_t = tanh(h_(t-1) + x), and the products h_t w of all steps.
Graph steps_of(std::int64_t steps, bool reads_own) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {3, 5});
  const NodeId w = g.expand(g.reshape(g.input("w", DType::F32, {5, 5}), {1, 5, 5}), {3, 5, 5});
  NodeId h = g.input("h", DType::F32, {3, 5});
  for (std::int64_t t = 0; t < steps; ++t) {
    h = g.unary(Op::Tanh, g.binary(Op::Add, h, x));
    const NodeId product = g.reduce(
        Op::ReduceSum, g.binary(Op::Mul, g.expand(g.reshape(h, {3, 1, 5}), {3, 5, 5}), w), {2});
    g.outputs.push_back(product);
    if (reads_own)
      h = g.binary(Op::Add, h, product);
  }
  return g;
}

TEST(UnrolledProducts, OfResultsOfTheStepsAreJoinedWhereNoStepReadsThem) {
  const Graph graph = steps_of(5, false), joined = join_unrolled_products(graph);
  EXPECT_EQ(products_of(joined), 1u) << print(joined);
  expect_same(graph, joined);
  const Graph own = steps_of(5, true);
  EXPECT_EQ(print(join_unrolled_products(own)), print(own));
}

// A stack of all steps of a long loop would be a kernel that reads as many values.
TEST(UnrolledProducts, OfLongLoopsAreJoinedInParts) {
  const Graph graph = steps_of(150, false), joined = join_unrolled_products(graph);
  EXPECT_EQ(products_of(joined), 3u);
  ir::verify(joined);
}

TEST(UnrolledProducts, ThatAreAddedUpAreOneSum) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {4, 3, 5});
  NodeId h = g.input("h", DType::F32, {3, 6}), sum = g.input("y", DType::F32, {6, 5});
  for (std::int64_t t = 0; t < 4; ++t) {
    h = g.unary(Op::Tanh, h);
    const NodeId slice = g.reshape(g.shrink(x, {3 - t, 0, 0}, {4 - t, 3, 5}), {3, 1, 5});
    sum = g.binary(Op::Add, sum,
                   g.reduce(Op::ReduceSum,
                            g.binary(Op::Mul, g.expand(g.reshape(h, {3, 6, 1}), {3, 6, 5}),
                                     g.expand(slice, {3, 6, 5})),
                            {0}));
  }
  g.outputs = {sum, h};
  const Graph joined = join_unrolled_products(g);
  EXPECT_EQ(products_of(joined), 1u) << print(joined);
  expect_same(g, joined);
}

TEST(UnrolledProducts, StayApartUnderAMemoryLimit) {
  const Graph graph = graph_of(RecurrentProgram{.steps = 5, .inputs = 7});
  testing::NullDevice device;
  KernelCache cache;
  Options options;
  const std::size_t joined = compile_graph(graph, options, device, cache).plan.steps.size();
  options.memory_limit = 1 << 20;
  EXPECT_EQ(compile_graph(graph, options, device, cache).plan.steps.size(), joined + 4);
}

} // namespace
} // namespace egret::compiler
