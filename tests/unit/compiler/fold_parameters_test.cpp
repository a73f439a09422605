// Products with different parameters as one product with the parameters side by side: where that is
// done, where it is not, and that the values stay.
#include "compiler/fold_parameters.h"

#include "backend/reference/reference.h"
#include "support/graph_runner.h"
#include "support/region_forms.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret::compiler {
namespace {

using backend::reference::HostArray;
using ir::Graph;
using ir::NodeId;

/// x [m, k] times w [n, k], turned: as Linear has it; or, `plain`, w [k, n].
NodeId linear(Graph& g, NodeId x, NodeId w, bool weight_first = false, bool plain = false) {
  const Shape sx = g[x].shape;
  const NodeId rows = plain ? g.permute(w, {1, 0}) : w;
  const Expr n = g[rows].shape[0];
  const Shape box{sx[0], n, sx[1]};
  const NodeId a = g.expand(g.reshape(x, {sx[0], 1, sx[1]}), box);
  const NodeId b = g.expand(g.reshape(rows, {1, n, sx[1]}), box);
  return g.reduce(Op::ReduceSum, weight_first ? g.binary(Op::Mul, b, a) : g.binary(Op::Mul, a, b),
                  {2});
}

NodeId parameter(Graph& g, std::int64_t n, std::int64_t k, DType dtype = DType::F32) {
  return g.input("w" + std::to_string(g.inputs().size()), dtype, {n, k});
}

/// All inputs but the first.
std::vector<bool> all_but_first(const Graph& g) {
  std::vector<bool> steady(g.inputs().size(), true);
  steady[0] = false;
  return steady;
}

kernel::Target target() {
  return testing::test_targets()[0];
}

std::size_t sums_of(const Graph& g) {
  std::size_t count = 0;
  for (NodeId id = 0; id < g.size(); ++id)
    count += g[id].op == Op::ReduceSum;
  return count;
}

/// The results with the derived inputs made by `fill`.
std::vector<HostArray> run_folded(const ParameterFolding& d, const std::vector<HostArray>& inputs) {
  std::vector<HostArray> from, all = inputs;
  for (std::size_t source : d.sources)
    from.push_back(inputs[source]);
  for (HostArray& array : backend::reference::execute(d.fill, from))
    all.push_back(std::move(array));
  return backend::reference::execute(d.main, all);
}

/// Derives, with `groups` wide products of which nothing else is left, and the same results in all
/// bits, sums having the same order.
void expect_derived(const Graph& g, std::size_t groups, std::size_t sums) {
  const auto derived = fold_parameters(g, all_but_first(g), target());
  ASSERT_TRUE(derived.has_value());
  ir::verify(derived->main);
  ir::verify(derived->fill);
  EXPECT_EQ(derived->report.size(), groups);
  EXPECT_EQ(sums_of(derived->main), sums) << ir::print(derived->main);
  for (bool special : {false, true}) {
    const auto inputs = testing::inputs_of(g, 3, special);
    const auto before = backend::reference::execute(g, inputs),
               after = run_folded(*derived, inputs);
    for (std::size_t i = 0; i < before.size(); ++i)
      EXPECT_EQ(testing::difference(before[i], after[i]), "") << i;
  }
}

void expect_left_alone(const Graph& g, const std::vector<bool>& steady) {
  EXPECT_FALSE(fold_parameters(g, steady, target()).has_value());
}

/// Queries, keys and values, and what attention begins with.
Graph attention(bool weight_first, bool plain, std::int64_t values = 6) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {4, 8});
  std::vector<NodeId> parts;
  for (std::int64_t n : {std::int64_t{6}, std::int64_t{6}, values})
    parts.push_back(
        linear(g, x, plain ? parameter(g, 8, n) : parameter(g, n, 8), weight_first, plain));
  g.outputs = {linear(g, parts[0], parts[1]), g.unary(Op::Cos, parts[2])};
  return g;
}

TEST(Derive, QueriesKeysAndValuesAreOneProduct) {
  for (bool weight_first : {false, true})
    for (bool plain : {false, true})
      expect_derived(attention(weight_first, plain), 1, 2);
}

TEST(Derive, PartsMayHaveDifferentWidths) {
  expect_derived(attention(false, false, 3), 1, 2);
}

TEST(Derive, BothOrdersOfFactorsGoTogether) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {4, 8});
  const NodeId a = linear(g, x, parameter(g, 5, 8), true), b = linear(g, x, parameter(g, 5, 8));
  g.outputs = {g.binary(Op::Add, a, b)};
  expect_derived(g, 1, 1);
}

// silu(x gate) * (x up), and the factors the other way round.
TEST(Derive, GateAndUpAreOneProduct) {
  for (bool gate_first : {true, false}) {
    Graph g;
    const NodeId x = g.input("x", DType::F32, {4, 8});
    const NodeId gate = linear(g, x, parameter(g, 12, 8)), up = linear(g, x, parameter(g, 12, 8));
    const NodeId silu = g.binary(Op::Mul, gate, g.unary(Op::Sigmoid, gate));
    const NodeId hidden = gate_first ? g.binary(Op::Mul, silu, up) : g.binary(Op::Mul, up, silu);
    g.outputs = {linear(g, hidden, parameter(g, 8, 12))};
    expect_derived(g, 1, 2);
  }
}

TEST(Derive, ParametersInFewerBitsAreKeptInFewerBits) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {4, 8});
  const NodeId a = linear(g, x, g.cast(parameter(g, 5, 8, DType::BF16), DType::F32)),
               b = linear(g, x, g.cast(parameter(g, 5, 8, DType::BF16), DType::F32));
  g.outputs = {g.binary(Op::Add, a, b)};
  expect_derived(g, 1, 1);
  EXPECT_EQ(fold_parameters(g, all_but_first(g), target())->report[0].dtype, DType::BF16);
}

TEST(Derive, TheConcatenationHasTheParametersInOrder) {
  for (bool plain : {false, true}) {
    const Graph g = attention(false, plain);
    const auto derived = fold_parameters(g, all_but_first(g), target());
    ASSERT_TRUE(derived.has_value());
    EXPECT_EQ(derived->sources, (std::vector<std::size_t>{1, 2, 3}));
    EXPECT_EQ(derived->report[0].sources, (std::vector<std::string>{"w1", "w2", "w3"}));
    const auto inputs = testing::inputs_of(g, 9, true);
    const auto wide = backend::reference::execute(
        derived->fill, std::vector<HostArray>(inputs.begin() + 1, inputs.end()))[0];
    // [18, 8], or [8, 18]: behind an axis of one row that all share.
    ASSERT_EQ(wide.size(), 18 * 8);
    for (std::int64_t row = 0; row < 18; ++row)
      for (std::int64_t k = 0; k < 8; ++k) {
        const HostArray& from = inputs[static_cast<std::size_t>(1 + row / 6)];
        const std::int64_t at = plain ? k * 6 + row % 6 : row % 6 * 8 + k;
        EXPECT_TRUE(backend::reference::same(
            DType::F32, wide.at(plain ? k * 18 + row : row * 8 + k), from.at(at)));
      }
  }
}

TEST(Derive, EveryLayerHasItsOwn) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {4, 8});
  for (int layer = 0; layer < 3; ++layer) {
    const NodeId a = linear(g, x, parameter(g, 8, 8)), b = linear(g, x, parameter(g, 8, 8));
    x = g.binary(Op::Mul, a, g.unary(Op::Tanh, b));
  }
  g.outputs = {x};
  expect_derived(g, 3, 3);
}

TEST(Derive, ParametersThatChangeAreLeftAlone) {
  const Graph g = attention(false, false);
  expect_left_alone(g, {false, false, false, false});
  expect_left_alone(g, {false, true, false, false});
  // Two of three stay.
  const auto some = fold_parameters(g, {false, true, false, true}, target());
  ASSERT_TRUE(some.has_value());
  EXPECT_EQ(some->sources, (std::vector<std::size_t>{1, 3}));
}

TEST(Derive, ProductsOfDifferentOperandsAreLeftAlone) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {4, 8}), y = g.input("y", DType::F32, {4, 8});
  const NodeId a = linear(g, x, parameter(g, 5, 8)), b = linear(g, y, parameter(g, 5, 8));
  g.outputs = {g.binary(Op::Add, a, b)};
  expect_left_alone(g, {false, false, true, true});
}

TEST(Derive, ResultsOfTheGraphAreLeftAlone) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {4, 8});
  const NodeId a = linear(g, x, parameter(g, 5, 8)), b = linear(g, x, parameter(g, 5, 8));
  g.outputs = {a, g.unary(Op::Cos, b)};
  expect_left_alone(g, all_but_first(g));
}

TEST(Derive, ASecondReaderOfAFactorsProductIsLeftAlone) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {4, 8});
  const Shape box{4, 5, 8};
  const auto product = [&](NodeId w) {
    return g.binary(Op::Mul, g.expand(g.reshape(x, {4, 1, 8}), box),
                    g.expand(g.reshape(w, {1, 5, 8}), box));
  };
  const NodeId p = product(parameter(g, 5, 8)), q = product(parameter(g, 5, 8));
  g.outputs = {g.binary(Op::Add, g.reduce(Op::ReduceSum, p, {2}), g.reduce(Op::ReduceSum, q, {2})),
               g.reduce(Op::ReduceMax, p, {2})};
  expect_left_alone(g, all_but_first(g));
}

// Each product would have made what reads it before it stores anything.
TEST(Derive, LargePartsWithAnEpilogueAreLeftAlone) {
  const auto gated = [](std::int64_t rows) {
    Graph g;
    const NodeId x = g.input("x", DType::F32, {rows, 8});
    const NodeId gate = linear(g, x, parameter(g, 64, 8)), up = linear(g, x, parameter(g, 64, 8));
    g.outputs = {g.binary(Op::Mul, up, g.unary(Op::Sigmoid, gate))};
    return g;
  };
  kernel::Target t = target();
  t.l2_bytes = 1 << 20;
  const Graph few = gated(8), many = gated(8192);
  EXPECT_TRUE(fold_parameters(few, all_but_first(few), t).has_value());
  EXPECT_FALSE(fold_parameters(many, all_but_first(many), t).has_value());
}

TEST(Derive, CopiesTakeAShareOfTheMemory) {
  const Graph g = attention(false, false);
  kernel::Target t = target();
  t.memory_bytes = 8 * 18 * 8 * 4;
  EXPECT_TRUE(fold_parameters(g, all_but_first(g), t).has_value());
  t.memory_bytes -= 8;
  EXPECT_FALSE(fold_parameters(g, all_but_first(g), t).has_value());
}

TEST(Derive, RowsMayBeSymbolic) {
  Graph g;
  const Expr n = Expr::symbol("n", 1, 64);
  const NodeId x = g.input("x", DType::F32, {n, 8});
  const NodeId a = linear(g, x, parameter(g, 5, 8)), b = linear(g, x, parameter(g, 5, 8));
  g.outputs = {g.binary(Op::Add, a, b)};
  expect_derived(g, 1, 1);
}

} // namespace
} // namespace egret::compiler
