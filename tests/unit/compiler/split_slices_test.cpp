// Products that are read in slices: when their kernels take the readers along, and that values
// stay.
#include "compiler/split_slices.h"

#include "compiler/compile.h"
#include "compiler/partition.h"
#include "compiler/prepare_outputs.h"
#include "support/contractions.h"
#include "support/graph_runner.h"
#include "support/null_device.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

using ir::Graph;
using ir::NodeId;

constexpr std::int64_t kRows = 6, kLength = 16, kDepth = 7;

/// x w of [kRows, slices * kLength].
NodeId product(Graph& g, const std::string& x, const std::string& w, std::int64_t slices) {
  const testing::Einsum e{"mk", "nk", "mn", {{'m', kRows}, {'n', slices * kLength}, {'k', kDepth}}};
  return testing::einsum(g, g.input(x, DType::F32, e.shape_of("mk")),
                         g.input(w, DType::F32, e.shape_of("nk")), e);
}

NodeId slice(Graph& g, NodeId all, std::int64_t i) {
  return g.shrink(all, {0, i * kLength}, {kRows, (i + 1) * kLength});
}

NodeId state(Graph& g) {
  return g.input("state", DType::F32, {kRows, kLength});
}

/// One step of an LSTM, whose input's product is a product as well where `inputs` says so.
Graph lstm(bool inputs = false) {
  Graph g;
  const NodeId y =
      inputs ? product(g, "input", "wi", 4) : g.input("y", DType::F32, {kRows, 4 * kLength});
  const NodeId all = g.binary(Op::Add, product(g, "h", "w", 4), y), c = state(g);
  const auto sigmoid = [&](std::int64_t i) { return g.unary(Op::Sigmoid, slice(g, all, i)); };
  const NodeId kept = g.binary(Op::Mul, sigmoid(1), c),
               fresh = g.binary(Op::Mul, sigmoid(0), g.unary(Op::Tanh, slice(g, all, 2))),
               cell = g.binary(Op::Add, kept, fresh);
  g.outputs = {g.binary(Op::Mul, sigmoid(3), g.unary(Op::Tanh, cell)), cell};
  return g;
}

/// One step of a GRU, with the reset gate behind the product.
Graph gru() {
  Graph g;
  const NodeId all = product(g, "h", "w", 3), h = state(g),
               y = g.input("y", DType::F32, {kRows, 3 * kLength});
  const auto gate = [&](std::int64_t i) {
    return g.unary(Op::Sigmoid, g.binary(Op::Add, slice(g, all, i), slice(g, y, i)));
  };
  const NodeId fresh = g.unary(
      Op::Tanh, g.binary(Op::Add, slice(g, y, 2), g.binary(Op::Mul, gate(0), slice(g, all, 2))));
  const NodeId z = gate(1);
  g.outputs = {g.binary(Op::Add, fresh, g.binary(Op::Mul, z, g.binary(Op::Add, h, fresh)))};
  return g;
}

Graph gated_unit() {
  Graph g;
  const NodeId all = product(g, "x", "w", 2), first = slice(g, all, 0);
  g.outputs = {
      g.binary(Op::Mul, g.binary(Op::Mul, first, g.unary(Op::Sigmoid, first)), slice(g, all, 1))};
  return g;
}

std::size_t kernels_of(const Graph& g) {
  testing::NullDevice device;
  KernelCache cache;
  return compile_graph(g, {}, device, cache).plan.kernels.size();
}

void expect_same_values(const Graph& g) {
  const auto inputs = testing::random_inputs(g, 3);
  const Graph split = split_slices(g);
  ir::verify(split);
  const auto before = backend::reference::execute(g, inputs),
             after = backend::reference::execute(split, inputs);
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(testing::difference(before[i], after[i]), "") << print(split);
}

TEST(SplitSlices, OfRecurrentCellsAndGatedUnitsAreOneKernel) {
  for (const Graph& g : {lstm(), gru(), gated_unit()}) {
    expect_same_values(g);
    EXPECT_NE(print(split_slices(g)), print(g));
    EXPECT_EQ(kernels_of(g), 1u) << print(g);
  }
}

TEST(SplitSlices, TheLastProductOfAStepTakesItAlong) {
  const Graph g = lstm(true);
  expect_same_values(g);
  const Graph split = prepare_outputs(split_slices(g));
  const GraphFacts facts(split);
  const Partition partition = partition_greedily(facts, true);
  ASSERT_EQ(partition.groups.size(), 2u);
  EXPECT_EQ(partition.groups[0].members.size(), 1u);
  EXPECT_EQ(partition.groups[0].sliced, -1);
  EXPECT_GE(partition.groups[1].sliced, 0);
}

TEST(SplitSlices, ChoicesKeepReadersApart) {
  const Graph split = prepare_outputs(split_slices(gru()));
  const GraphFacts facts(split);
  EXPECT_EQ(partition_greedily(facts, true).groups.size(), 1u);
  PartitionChoices choices;
  choices.slices = false;
  EXPECT_EQ(partition_greedily(facts, true, nullptr, choices).groups.size(), 2u);
}

TEST(SplitSlices, ADimOfSlicesIsReadAtFixedPlaces) {
  Graph g;
  const testing::Einsum e{"mk", "gnk", "mgn", {{'m', 5}, {'g', 3}, {'n', 16}, {'k', 8}}};
  const NodeId all = testing::einsum(g, g.input("x", DType::F32, e.shape_of("mk")),
                                     g.input("w", DType::F32, e.shape_of("gnk")), e);
  const auto at = [&](std::int64_t i) {
    return g.reshape(g.shrink(all, {0, i, 0}, {5, i + 1, 16}), {5, 16});
  };
  g.outputs = {g.binary(Op::Add, at(0), g.binary(Op::Mul, at(1), at(2)))};
  EXPECT_EQ(kernels_of(g), 1u);
}

TEST(SplitSlices, ProductsThatAreReadOtherwiseStayAsTheyAre) {
  const auto stays = [](const Graph& g) {
    EXPECT_EQ(print(split_slices(g)), print(g));
    expect_same_values(g);
  };
  {
    Graph g = gated_unit(); // the product itself is wanted, too
    g.outputs.push_back(g.outputs[0]);
    for (NodeId id = 0; id < g.size(); ++id)
      if (g[id].op == Op::ReduceSum)
        g.outputs[1] = id;
    stays(g);
  }
  {
    Graph g; // parts of two lengths
    const NodeId all = product(g, "x", "w", 2);
    const NodeId a = g.shrink(all, {0, 0}, {kRows, 5}), b = g.shrink(all, {0, 5}, {kRows, 32});
    g.outputs = {g.unary(Op::Tanh, a), g.unary(Op::Exp, b)};
    stays(g);
  }
  {
    Graph g; // slices that begin between others
    const NodeId all = product(g, "x", "w", 3);
    const NodeId a = g.shrink(all, {0, 5}, {kRows, 21}), b = slice(g, all, 0);
    g.outputs = {g.binary(Op::Mul, a, b)};
    stays(g);
  }
  {
    Graph g; // more slices than a kernel holds
    const NodeId all = product(g, "x", "w", 9);
    g.outputs = {g.binary(Op::Mul, slice(g, all, 0), slice(g, all, 8))};
    stays(g);
  }
}

} // namespace
} // namespace egret::compiler
