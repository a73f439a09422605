// Graphs that fail a check become small, keep failing, and are equal to what their text says.
#include "support/minimize.h"
#include "support/bad_kernels.h"
#include "support/typed_graphs.h"

#include <gtest/gtest.h>

namespace egret::testing {
namespace {

using ir::Graph;
using ir::NodeId;

void expect_parses_back(const Graph& graph) {
  const Graph again = ir::parse_graph(ir::print(graph));
  ASSERT_EQ(again.size(), graph.size());
  EXPECT_EQ(again.outputs, graph.outputs);
  EXPECT_EQ(again.inputs(), graph.inputs());
  for (NodeId id = 0; id < graph.size(); ++id) {
    EXPECT_EQ(again[id].op, graph[id].op);
    EXPECT_EQ(again[id].dtype, graph[id].dtype);
    EXPECT_EQ(again[id].shape, graph[id].shape);
    EXPECT_EQ(again[id].inputs, graph[id].inputs);
    EXPECT_EQ(again[id].attrs, graph[id].attrs);
  }
}

std::size_t ops_of(const Graph& graph) {
  return graph.size() - graph.inputs().size();
}

bool has_exp_in_sum(const Graph& graph) {
  for (NodeId id = 0; id < graph.size(); ++id)
    if (graph[id].op == Op::ReduceSum && graph[graph[id].inputs[0]].op == Op::Exp)
      return true;
  return false;
}

TEST(Minimize, LeavesTheTwoOpsThatFailTogether) {
  std::size_t failed = 0, larger = 0;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    const Graph graph = with_gradients(typed_graph(seed));
    if (!has_exp_in_sum(graph))
      continue;
    ++failed;
    larger += ops_of(graph) > 20;
    const Graph small = minimized(graph, has_exp_in_sum);
    EXPECT_TRUE(has_exp_in_sum(small));
    EXPECT_EQ(ops_of(small), 2u) << ir::print(small);
    EXPECT_EQ(small.inputs().size(), 1u);
    for (const Expr& dim : small[0].shape)
      EXPECT_LE(dim.upper(), 1) << ir::print(small);
    expect_parses_back(small);
  }
  EXPECT_GT(failed, 20u);
  EXPECT_GT(larger, 10u);
}

TEST(Minimize, FindsWhatAWrongKernelComputes) {
  TypedGraphs graphs([](kernel::Region&, kernel::Chosen& chosen) {
    // Far from tanh everywhere: an f8 must show it for any input.
    replace_op(chosen.program.body, Op::Tanh, Op::Exp);
  });
  graphs.run(1, 200);
  ASSERT_FALSE(graphs.failures.empty());
  for (const TypedFailure& failure : graphs.failures) {
    EXPECT_FALSE(failure.problem.empty());
    EXPECT_EQ(ops_of(failure.minimized), 1u) << failure.text();
    EXPECT_EQ(failure.minimized[1].op, Op::Tanh) << failure.text();
    expect_parses_back(failure.minimized);
    EXPECT_NE(failure.text().find(ir::print(failure.minimized)), std::string::npos);
  }
}

TEST(Minimize, LeavesWhatDoesNotFailAlone) {
  const Graph graph = typed_graph(3);
  EXPECT_EQ(ir::print(minimized(graph, [](const Graph&) { return false; })), ir::print(graph));
}

TEST(Minimize, StopsWhereItsTrialsEnd) {
  std::uint64_t seed = 1;
  while (ops_of(with_gradients(typed_graph(seed))) < 60)
    ++seed;
  const Graph graph = with_gradients(typed_graph(seed));
  int asked = 0;
  minimized(
      graph, [&](const Graph&) { return ++asked % 2 == 1; }, 5);
  EXPECT_EQ(asked, 6) << "once for the graph itself";
}

// Sizes must fit each other: those of reshapes, slices and expansions follow.
TEST(Minimize, ShrinksSizesTogether) {
  Graph g;
  const Expr n = Expr::symbol("n", 4, 16, 4);
  const NodeId x = g.input("x", DType::F32, {n, 12}), y = g.input("y", DType::F32, {7});
  const NodeId wide = g.expand(g.reshape(x, {n, 3, 4, 1}), {n, 3, 4, 7});
  const NodeId sum = g.binary(Op::Add, wide, g.broadcast(y, {n, 3, 4, 7}));
  g.outputs = {y, g.shrink(sum, {1, 0, 1, 2}, {4, 2, 3, 6})};
  const auto fails = [](const Graph& graph) {
    int kinds = 0;
    for (NodeId id = 0; id < graph.size(); ++id)
      kinds |= graph[id].op == Op::Reshape  ? 1
               : graph[id].op == Op::Expand ? 2
               : graph[id].op == Op::Shrink ? 4
                                            : 0;
    return kinds == 7 && graph[graph.outputs.back()].op == Op::Shrink;
  };
  const Graph small = minimized(g, fails);
  EXPECT_TRUE(fails(small));
  EXPECT_TRUE(ir::symbols_of(small).empty());
  std::int64_t elements = 1;
  for (const Expr& dim : small[small.inputs()[0]].shape)
    elements *= dim.value();
  EXPECT_LT(elements, 24) << ir::print(small);
  expect_parses_back(small);
}

} // namespace
} // namespace egret::testing
