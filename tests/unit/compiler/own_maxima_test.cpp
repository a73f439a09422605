// Softmaxes over concatenated scores become a stream for each operand: reductions over them are
// split (split_reductions.h), and each operand is summed with its own maximum (own_maxima.h).
#include "compiler/own_maxima.h"

#include "backend/reference/reference.h"
#include "compiler/resolve_slices.h"
#include "compiler/split_reductions.h"
#include "kernel/stream_form.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace egret::compiler {
namespace {

using backend::reference::HostArray;
using ir::Graph;
using ir::NodeId;

constexpr std::int64_t kRows = 12, kDepth = 4, kColumns = 5;

NodeId spread(Graph& g, NodeId id, Shape shape, Shape wide) {
  return g.expand(g.reshape(id, std::move(shape)), std::move(wide));
}

/// q k': [rows, keys].
NodeId scores(Graph& g, NodeId q, NodeId k, std::int64_t keys) {
  const Shape box{kRows, keys, kDepth};
  return g.reduce(Op::ReduceSum,
                  g.binary(Op::Mul, spread(g, q, {kRows, 1, kDepth}, box),
                           spread(g, k, {1, keys, kDepth}, box)),
                  {2});
}

NodeId joined(Graph& g, NodeId a, NodeId b, std::int64_t of_a, std::int64_t of_b) {
  const Shape box{kRows, of_a + of_b};
  const Scalar zero = Scalar::of(DType::F32, 0.0);
  const NodeId limit = g.constant(Scalar::of(DType::I64, of_a));
  const NodeId first = g.binary(Op::Lt, g.iota(of_a + of_b), g.broadcast(limit, {of_a + of_b}));
  return g.select(g.broadcast(first, box), g.pad(a, {0, 0}, {0, of_b}, zero),
                  g.pad(b, {0, of_a}, {0, 0}, zero));
}

NodeId softmax(Graph& g, NodeId x) {
  const Shape box = g[x].shape;
  const NodeId top = g.reduce(Op::ReduceMax, x, {1});
  const NodeId minus = g.binary(Op::Mul, spread(g, top, {kRows, 1}, box),
                                g.broadcast(g.constant(DType::F32, -1), box));
  const NodeId e = g.unary(Op::Exp, g.binary(Op::Add, x, minus));
  return g.binary(Op::Div, e, spread(g, g.reduce(Op::ReduceSum, e, {1}), {kRows, 1}, box));
}

/// weights [rows, keys] times values [keys, columns].
NodeId weighted(Graph& g, NodeId weights, NodeId values, std::int64_t keys) {
  const Shape box{kRows, keys, kColumns};
  return g.reduce(Op::ReduceSum,
                  g.binary(Op::Mul, spread(g, weights, {kRows, keys, 1}, box),
                           spread(g, values, {1, keys, kColumns}, box)),
                  {1});
}

NodeId part(Graph& g, NodeId x, std::int64_t begin, std::int64_t end) {
  return g.shrink(x, {0, begin}, {kRows, end});
}

/// Attention over 40 keys and a sink of each row; `rounded`: weights in bf16. Inputs: q, k, v, the
/// sink, and what is added to the scores, as masks of -inf are.
Graph with_sink(bool rounded = false, bool first = false) {
  constexpr std::int64_t kKeys = 40;
  Graph g;
  const NodeId q = g.input("q", DType::F32, {kRows, kDepth});
  const NodeId k = g.input("k", DType::F32, {kKeys, kDepth});
  const NodeId v = g.input("v", DType::F32, {kKeys, kColumns});
  const NodeId sink = g.input("sink", DType::F32, {kRows, 1});
  const NodeId mask = g.input("mask", DType::F32, {kRows, kKeys});
  const NodeId s = g.binary(Op::Add, scores(g, q, k, kKeys), mask);
  const NodeId x = first ? joined(g, sink, s, 1, kKeys) : joined(g, s, sink, kKeys, 1);
  NodeId p = part(g, softmax(g, x), first ? 1 : 0, first ? kKeys + 1 : kKeys);
  if (rounded)
    p = g.cast(g.cast(p, DType::BF16), DType::F32);
  g.outputs = {weighted(g, p, v, kKeys)};
  return g;
}

/// Attention over two blocks of keys.
Graph of_two_blocks() {
  constexpr std::int64_t kKeys = 40, kMore = 28;
  Graph g;
  const NodeId q = g.input("q", DType::F32, {kRows, kDepth});
  const NodeId k = g.input("k", DType::F32, {kKeys, kDepth});
  const NodeId v = g.input("v", DType::F32, {kKeys, kColumns});
  const NodeId more = g.input("more", DType::F32, {kMore, kDepth});
  const NodeId w = g.input("w", DType::F32, {kMore, kColumns});
  const NodeId p =
      softmax(g, joined(g, scores(g, q, k, kKeys), scores(g, q, more, kMore), kKeys, kMore));
  g.outputs = {g.binary(Op::Add, weighted(g, part(g, p, 0, kKeys), v, kKeys),
                        weighted(g, part(g, p, kKeys, kKeys + kMore), w, kMore))};
  return g;
}

Graph prepared(const Graph& graph) {
  Graph after = with_own_maxima(resolve_slices(split_reductions(graph)));
  ir::verify(after);
  return after;
}

/// Streams over the scores, and the most passes of one.
struct Streams {
  int count = 0, passes = 0;
  friend bool operator==(const Streams&, const Streams&) = default;
};
Streams streams_of(const Graph& graph) {
  kernel::Target target = testing::test_targets()[0];
  target.l2_bytes = 64; // so that scores are worth making anew
  Streams streams;
  for (const kernel::Region& region : testing::regions_of(graph, target)) {
    const auto found =
        kernel::find_stream(kernel::prepared_for_stream(region), kernel::StreamTakes::Vectors);
    if (!found.ok)
      continue;
    ++streams.count;
    streams.passes = std::max(streams.passes, found.form.passes);
  }
  return streams;
}

std::vector<HostArray> inputs_of(const Graph& graph) {
  return testing::random_inputs(graph, 3, {.special = false, .range = 1});
}

void expect_equal(const Graph& before, const Graph& after, const std::vector<HostArray>& inputs) {
  const auto expected = backend::reference::expect(before, inputs);
  const auto actual = backend::reference::execute(after, inputs);
  for (std::size_t o = 0; o < actual.size(); ++o) {
    const auto result = backend::reference::compare(actual[o], expected[o], "output");
    EXPECT_TRUE(result.ok) << result.message;
  }
}

TEST(OwnMaxima, StreamAttentionBesideASink) {
  for (const bool first : {false, true}) {
    const Graph before = with_sink(false, first);
    const Graph after = prepared(before);
    EXPECT_EQ(streams_of(before), (Streams{0, 0})) << ir::print(before);
    EXPECT_EQ(streams_of(after), (Streams{1, 1})) << ir::print(after);
    expect_equal(before, after, inputs_of(before));
  }
}

TEST(OwnMaxima, StreamAttentionOverTwoBlocks) {
  const Graph before = of_two_blocks();
  const Graph after = prepared(before);
  EXPECT_EQ(streams_of(before), (Streams{0, 0})) << ir::print(before);
  EXPECT_EQ(streams_of(after), (Streams{2, 1})) << ir::print(after);
  expect_equal(before, after, inputs_of(before));
}

TEST(OwnMaxima, AreTakenThroughRoundings) {
  const Graph before = with_sink(true);
  const Graph after = prepared(before);
  EXPECT_NE(ir::print(with_own_maxima(resolve_slices(split_reductions(before)))),
            ir::print(resolve_slices(split_reductions(before))));
  expect_equal(before, after, inputs_of(before));
}

TEST(OwnMaxima, KeepRowsThatAreMaskedAndValuesThatAreNoNumbers) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Graph before = with_sink();
  const Graph after = prepared(before);
  std::vector<HostArray> inputs = inputs_of(before);
  const auto put = [&](std::size_t input, std::int64_t at, double value) {
    inputs[input].set(at, {.f = value});
  };
  for (const std::int64_t row : {0, 1})
    for (int j = 0; j < 40; ++j)
      put(4, row * 40 + j, -kInf);
  put(3, 1, -kInf); // row 0 has its sink only, row 1 nothing
  put(3, 2, -kInf);
  put(3, 3, kInf);
  put(3, 4, std::numeric_limits<double>::quiet_NaN());
  put(3, 5, 200); // the scores' weights vanish
  put(3, 6, -200);
  put(4, 7 * 40 + 3, kInf);
  const std::vector<double> result = backend::reference::execute(after, inputs)[0].doubles();
  for (std::size_t c = 0; c < kColumns; ++c) {
    EXPECT_EQ(result[c], 0);
    EXPECT_TRUE(std::isnan(result[kColumns + c]));
  }
  expect_equal(before, after, inputs);
}

TEST(OwnMaxima, AreLeftWhereTheMaximumIsOfSomethingElse) {
  Graph g;
  const NodeId q = g.input("q", DType::F32, {kRows, kDepth}),
               k = g.input("k", DType::F32, {40, kDepth}),
               v = g.input("v", DType::F32, {40, kColumns}), c = g.input("c", DType::F32, {kRows});
  const Shape box{kRows, 40};
  const NodeId x = scores(g, q, k, 40);
  const NodeId twice = g.binary(Op::Add, x, x);
  const NodeId top = g.binary(Op::Max, g.reduce(Op::ReduceMax, twice, {1}), c);
  const NodeId minus = g.binary(Op::Mul, spread(g, top, {kRows, 1}, box),
                                g.broadcast(g.constant(DType::F32, -1), box));
  const NodeId e = g.unary(Op::Exp, g.binary(Op::Add, x, minus));
  g.outputs = {weighted(g, e, v, 40)};
  EXPECT_EQ(ir::print(with_own_maxima(g)), ir::print(g));
}

TEST(SplitReductions, AreOfFewOperandsMadeOfProducts) {
  Graph g; // operands in memory: one kernel reads them all
  const NodeId a = g.input("a", DType::F32, {kRows, 40}), b = g.input("b", DType::F32, {kRows, 1});
  g.outputs = {softmax(g, joined(g, a, b, 40, 1))};
  EXPECT_EQ(ir::print(split_reductions(g)), ir::print(g));
  const Graph two = of_two_blocks();
  EXPECT_NE(ir::print(split_reductions(two)), ir::print(two));
}

} // namespace
} // namespace egret::compiler
