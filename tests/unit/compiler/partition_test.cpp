// How many kernels well-known programs become, and which values they store.
#include "backend/cuda/target.h"
#include "compiler/canonical.h"
#include "compiler/compile.h"
#include "compiler/inlining.h"
#include "compiler/partition.h"
#include "compiler/partitioned.h"
#include "compiler/pass_forms.h"
#include "compiler/prepare_outputs.h"
#include "compiler/recompute_in_readers.h"
#include "compiler/regions.h"
#include "compiler/streaming.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "support/attention_graphs.h"
#include "support/null_device.h"
#include "support/targets.h"

#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

using ir::Graph;
using ir::NodeId;

struct Split {
  Graph graph;
  Partition partition;
};

Split split(const Graph& g, bool fuse = true) {
  Split s;
  s.graph = prepare_outputs(ir::without_dead_code(g));
  const GraphFacts facts(s.graph);
  s.partition = partition_greedily(facts, fuse);
  return s;
}

NodeId scalar(Graph& g, double v, Shape shape) {
  return g.broadcast(g.constant(DType::F32, v), shape);
}

NodeId matmul_node(Graph& g, NodeId a, NodeId b) {
  const Shape sa = g[a].shape, sb = g[b].shape;
  const Shape box{sa[0], sb[1], sa[1]};
  NodeId x = g.expand(g.reshape(a, {sa[0], 1, sa[1]}), box);
  NodeId y = g.expand(g.reshape(g.permute(b, {1, 0}), {1, sb[1], sa[1]}), box);
  return g.reduce(Op::ReduceSum, g.binary(Op::Mul, x, y), {2});
}

NodeId relu(Graph& g, NodeId x) {
  NodeId zero = scalar(g, 0, g[x].shape);
  return g.select(g.binary(Op::Lt, zero, x), x, zero);
}

NodeId sub(Graph& g, NodeId a, NodeId b) {
  return g.binary(Op::Add, a, g.binary(Op::Mul, b, scalar(g, -1, g[b].shape)));
}

/// Several partitions of a graph are tried, which differ in few values: what a cone reads is found
/// once for each way in which its own values are stored or not.
TEST(Partition, ConesThatDidNotChangeAreNotReadAgain) {
  Graph g;
  NodeId middle[2], sums[2];
  for (int i = 0; i < 2; ++i) {
    const NodeId x = g.input("x", DType::F32, {64, 64});
    middle[i] = g.unary(Op::Exp, g.binary(Op::Mul, x, x));
    sums[i] = g.reduce(Op::ReduceSum, g.unary(Op::Sin, g.binary(Op::Add, middle[i], x)), {1});
    g.outputs.push_back(sums[i]);
  }
  const GraphFacts facts(g);
  PartitionChoices choices;
  choices.stored.insert(middle[1]);
  const Partition first = partition_greedily(facts, true);
  const Partition other = partition_greedily(facts, true, nullptr, choices);
  EXPECT_FALSE(first.stored[middle[1]]);
  EXPECT_TRUE(other.stored[middle[1]]);
  partition_greedily(facts, true);
  EXPECT_EQ(facts.cones({sums[0]}).size(), 1u);
  EXPECT_EQ(facts.cones({sums[1]}).size(), 2u) << "with the stored value and without it";
  const auto reads = [&](const Partition& p) { return reads_of(facts, p.stored, sums[1]); };
  EXPECT_EQ(reads(first).data(), reads(first).data()) << "kept";
  EXPECT_EQ(reads(first).size(), 1u);
  EXPECT_EQ(reads(other).size(), 2u);
}

NodeId keep(Graph& g, NodeId reduced, Shape like) {
  Shape s = like;
  s.back() = 1;
  return g.expand(g.reshape(reduced, s), like);
}

NodeId softmax_node(Graph& g, NodeId x) {
  const Shape s = g[x].shape;
  NodeId m = keep(g, g.reduce(Op::ReduceMax, x, {static_cast<std::int64_t>(s.size()) - 1}), s);
  NodeId e = g.unary(Op::Exp, sub(g, x, m));
  NodeId total = keep(g, g.reduce(Op::ReduceSum, e, {static_cast<std::int64_t>(s.size()) - 1}), s);
  return g.binary(Op::Div, e, total);
}

TEST(Partition, ElementwiseChainIsOneKernel) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {1000});
  g.outputs = {g.unary(Op::Tanh, g.binary(Op::Add, g.binary(Op::Mul, x, scalar(g, 2, {1000})),
                                          scalar(g, 1, {1000})))};
  Split s = split(g);
  ASSERT_EQ(s.partition.groups.size(), 1u);
  EXPECT_EQ(s.partition.groups[0].kind, GroupKind::Map);
  EXPECT_EQ(s.partition.groups[0].members.size(), 1u);
}

TEST(Partition, ViewsCostNoKernel) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {30, 40});
  NodeId y = g.unary(Op::Cos, g.permute(x, {1, 0}));
  NodeId z = g.unary(Op::Exp, g.reshape(y, {1200}));
  g.outputs = {z};
  EXPECT_EQ(split(g).partition.groups.size(), 1u);
}

TEST(Partition, MatmulTakesItsEpilogue) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {64, 32}), b = g.input("b", DType::F32, {32, 48}),
         bias = g.input("bias", DType::F32, {48});
  NodeId y = relu(g, g.binary(Op::Add, matmul_node(g, a, b), g.broadcast(bias, {64, 48})));
  g.outputs = {y};
  Split s = split(g);
  ASSERT_EQ(s.partition.groups.size(), 1u);
  EXPECT_EQ(s.partition.groups[0].kind, GroupKind::Contraction);
}

TEST(Partition, EpilogueValueThatOthersReadIsStoredToo) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {64, 32}), b = g.input("b", DType::F32, {32, 48});
  NodeId pre = matmul_node(g, a, b);
  g.outputs = {g.unary(Op::Tanh, pre), pre};
  EXPECT_EQ(split(g).partition.groups.size(), 1u);
}

TEST(Partition, SoftmaxIsOneKernelOverRows) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {128, 256});
  g.outputs = {softmax_node(g, x)};
  Split s = split(g);
  ASSERT_EQ(s.partition.groups.size(), 1u);
  EXPECT_EQ(s.partition.groups[0].kind, GroupKind::Reduce);
  EXPECT_EQ(s.partition.groups[0].reduced, (std::vector<bool>{false, true}));
}

TEST(Partition, LayerNormIsOneKernel) {
  Graph g;
  const Shape s{128, 256};
  NodeId x = g.input("x", DType::F32, s), w = g.input("w", DType::F32, {256});
  NodeId mean = g.binary(Op::Mul, g.reduce(Op::ReduceSum, x, {1}), scalar(g, 1.0 / 256, {128}));
  NodeId d = sub(g, x, keep(g, mean, s));
  NodeId var = g.binary(Op::Mul, g.reduce(Op::ReduceSum, g.binary(Op::Mul, d, d), {1}),
                        scalar(g, 1.0 / 256, {128}));
  NodeId r = g.unary(Op::Recip, g.unary(Op::Sqrt, g.binary(Op::Add, var, scalar(g, 1e-5, {128}))));
  g.outputs = {g.binary(Op::Mul, g.binary(Op::Mul, d, keep(g, r, s)), g.broadcast(w, s))};
  EXPECT_EQ(split(g).partition.groups.size(), 1u);
}

TEST(Partition, NaiveAttentionIsThreeKernels) {
  Graph g;
  const Shape box{128, 128};
  NodeId q = g.input("q", DType::F32, {128, 64}), k = g.input("k", DType::F32, {128, 64}),
         v = g.input("v", DType::F32, {128, 64});
  NodeId scores = g.binary(Op::Mul, matmul_node(g, q, g.permute(k, {1, 0})), scalar(g, 0.125, box));
  NodeId rows = g.expand(g.reshape(g.iota(128), {128, 1}), box),
         cols = g.expand(g.reshape(g.iota(128), {1, 128}), box);
  NodeId masked = g.select(g.binary(Op::Lt, rows, cols), scalar(g, -1e30, box), scores);
  g.outputs = {matmul_node(g, softmax_node(g, masked), v)};
  EXPECT_EQ(split(g).partition.groups.size(), 3u);
}

/// A sum of products that it sees in another order is none of a stream's: the axes of one are not
/// those of the other.
TEST(Partition, AStreamTakesNoSumOfPermutedProducts) {
  for (const bool permuted : {false, true}) {
    Graph g;
    const NodeId q = g.input("q", DType::F32, {128, 8}), k = g.input("k", DType::F32, {8, 96}),
                 v = g.input("v", DType::F32, {128, 8});
    const NodeId p = g.unary(Op::Exp, matmul_node(g, q, k));
    const Shape box{128, 96, 8}; // of which the first axis is summed
    const NodeId product = g.binary(Op::Mul, g.expand(g.reshape(p, {128, 96, 1}), box),
                                    g.expand(g.reshape(v, {128, 1, 8}), box));
    g.outputs = {permuted ? g.reduce(Op::ReduceSum, g.permute(product, {1, 0, 2}), {1})
                          : g.reduce(Op::ReduceSum, product, {0})};
    const Graph whole = prepare_outputs(ir::without_dead_code(g));
    const GraphFacts facts(whole);
    const StreamingRules rules{.in_memory = false};
    const Partition partition = partition_greedily(facts, true, &rules);
    EXPECT_EQ(std::ranges::count(partition.groups, GroupKind::Stream, &Group::kind),
              permuted ? 0 : 1);
    verify(build_regions(facts, partition, kernel::Target{}), whole);
  }
}

/// The streams among a GPU's kernels of softmax-like sums of `places` scores of f32 in each row.
std::ptrdiff_t streams_on_gpu(const Expr& rows, const Expr& places, const Expr& depth = 64,
                              std::int64_t memory_bytes = 0) {
  Graph g;
  const NodeId q = g.input("q", DType::F32, {rows, depth}),
               k = g.input("k", DType::F32, {depth, places}),
               v = g.input("v", DType::F32, {places, 64});
  g.outputs = {matmul_node(g, g.unary(Op::Exp, matmul_node(g, q, k)), v)};
  const Graph whole = prepare_outputs(ir::without_dead_code(g));
  const GraphFacts facts(whole);
  kernel::Target target = backend::cuda::known_target(90);
  target.memory_bytes = memory_bytes;
  const Partition partition = partition_for_target(facts, true, target, {});
  return std::count_if(partition.groups.begin(), partition.groups.end(),
                       [](const Group& group) { return group.kind == GroupKind::Stream; });
}

// A stream shares out rows alone: with few of them most multiprocessors would have none.
TEST(Partition, ScoresOfFewRowsAreStoredOnAGpuWhereThatIsFaster) {
  EXPECT_EQ(streams_on_gpu(64, 8192), 0);
  EXPECT_EQ(streams_on_gpu(16384, 16384), 1) << "1 GiB of scores are not stored";
  EXPECT_EQ(streams_on_gpu(64, 1 << 19), 1) << "134 MB of unknown memory";
  EXPECT_EQ(streams_on_gpu(64, 1 << 19, 64, std::int64_t{32} << 30), 0) << "1/256 of the memory";
  EXPECT_EQ(streams_on_gpu(64, Expr::symbol("n", 1, 1 << 24)), 1) << "as many as there may be";
  EXPECT_EQ(streams_on_gpu(64, 8192, Expr::symbol("d", 1, 64)), 0) << "no stream takes that";
}

/// A program is cut anew at most once to see that what costs less to recompute is stored all the
/// same: halves of those values are not tried one after the other.
TEST(Partition, WhatIsStoredAllTheSameIsTriedOnce) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {4096, 4096});
  for (int i = 1; i <= 4; ++i) {
    const NodeId scaled = g.binary(Op::Mul, x, scalar(g, i, g[x].shape));
    g.outputs.push_back(g.scan(Op::ScanSum, scaled, 0));
    g.outputs.push_back(g.scan(Op::ScanMax, scaled, 1));
  }
  const Graph whole = prepare_outputs(ir::without_dead_code(g));
  const GraphFacts facts(whole);
  PartitionChoices stored;
  for (NodeId id = 0; id < whole.size(); ++id)
    if (whole[id].op == Op::Mul)
      stored.stored.insert(id);
  ASSERT_FALSE(stored.stored.empty());
  std::vector<std::size_t> asked; // by cut: values to recompute
  with_recomputed_values(facts, backend::cuda::known_target(90), {},
                         [&](const PartitionChoices& choices) {
                           asked.push_back(choices.recomputed.size());
                           return partition_greedily(facts, true, nullptr, stored);
                         });
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0], 0u);
  EXPECT_GE(asked[1], 2u);
}

/// The streams among a CPU's kernels of attention.
std::ptrdiff_t streams_on_cpu(const testing::Attention& attention, bool pairs, bool tiles,
                              const PartitionChoices& choices = {}) {
  kernel::Target target;
  target.vector_bytes = 64;
  target.vector_registers = 32;
  target.l2_bytes = 64; // no product is stored for its smallness
  testing::set_units(target, pairs, tiles);
  const Graph whole = prepare_outputs(ir::without_dead_code(attention_graph(attention)));
  const GraphFacts facts(whole);
  const Partition partition = partition_for_target(facts, true, target, choices);
  return std::count_if(partition.groups.begin(), partition.groups.end(),
                       [](const Group& group) { return group.kind == GroupKind::Stream; });
}

TEST(Partition, PairsOfBf16MakeScoresInLessTimeThanACpusStreams) {
  testing::Attention a{"",    2,     8,    1, 128, 256, 64, 64, DType::BF16, testing::Mask::Given,
                       false, false, false};
  EXPECT_EQ(streams_on_cpu(a, true, false), 0);
  EXPECT_EQ(streams_on_cpu(a, true, false, {.stored_scores = false}), 1);
  EXPECT_EQ(streams_on_cpu(a, false, false), 1) << "nothing multiplies pairs";
  EXPECT_EQ(streams_on_cpu(a, true, true), 1) << "streams have a matrix unit too";
  a.blocks = 20;
  EXPECT_EQ(streams_on_cpu(a, true, false), 0);
  EXPECT_EQ(streams_on_cpu(a, false, false), 1) << "keys are gathered in the kernel";
  a.mask = testing::Mask::Causal;
  EXPECT_EQ(streams_on_cpu(a, true, false), 1) << "half of the tiles are skipped";
  a.mask = testing::Mask::None;
  a.type = DType::F32;
  EXPECT_EQ(streams_on_cpu(a, true, false), 1);
  a.type = DType::BF16;
  a.queries = a.keys = 2048;
  EXPECT_EQ(streams_on_cpu(a, true, false), 1) << "256 MB of scores are not stored";
}

TEST(Partition, AStreamReadsNoFactorThatItMakes) {
  // The gradient of mean(o * o) by the weights of o multiplies by o once more.
  Graph g;
  const Shape box{128, 128};
  const NodeId q = g.input("q", DType::F32, {128, 8}), k = g.input("k", DType::F32, {8, 128}),
               v = g.input("v", DType::F32, {128, 8});
  const NodeId p = g.unary(Op::Exp, matmul_node(g, q, k)), o = matmul_node(g, p, v);
  const NodeId again = matmul_node(g, g.binary(Op::Add, o, o), g.permute(v, {1, 0}));
  g.outputs = {o, g.reduce(Op::ReduceSum, g.binary(Op::Mul, p, again), {1})};
  const Graph whole = prepare_outputs(ir::without_dead_code(g));
  const GraphFacts facts(whole);
  const StreamingRules rules{.in_memory = false};
  const Partition partition = partition_greedily(facts, true, &rules);
  const auto streams =
      std::count_if(partition.groups.begin(), partition.groups.end(),
                    [](const Group& group) { return group.kind == GroupKind::Stream; });
  EXPECT_EQ(streams, 2);
  verify(build_regions(facts, partition, kernel::Target{}), whole);
}

// Not even where the sum has as many columns as the box: it has all of them when the whole row of
// the box was gone through.
TEST(Partition, AStreamReadsNoColumnsOfASumThatItMakes) {
  for (const bool row : {false, true}) {
    Graph g;
    const Shape box{128, 128};
    const NodeId q = g.input("q", DType::F32, {128, 8}), k = g.input("k", DType::F32, {8, 128}),
                 v = g.input("v", DType::F32, {128, 128}), w = g.input("w", DType::F32, {128, 8});
    const NodeId p = g.unary(Op::Exp, matmul_node(g, q, k));
    const NodeId o = row ? g.expand(g.reshape(g.reduce(Op::ReduceSum, p, {1}), {128, 1}), box)
                         : g.unary(Op::Tanh, matmul_node(g, p, v));
    g.outputs = {matmul_node(g, g.binary(Op::Add, p, o), w)};
    const Graph whole = prepare_outputs(ir::without_dead_code(g));
    const GraphFacts facts(whole);
    const StreamingRules rules{.in_memory = false};
    const Partition partition = partition_greedily(facts, true, &rules);
    EXPECT_EQ(std::ranges::count(partition.groups, GroupKind::Stream, &Group::kind), row ? 1 : 2);
    verify(build_regions(facts, partition, kernel::Target{}), whole);
  }
}

TEST(Partition, PathAroundPreventsJoining) {
  // y = exp(x) is read by its row sum and, with the transposed product in between, by z: joining y
  // with z would make a cycle.
  Graph g;
  NodeId x = g.input("x", DType::F32, {64, 64});
  NodeId y = g.unary(Op::Exp, x);
  NodeId t = matmul_node(g, y, y);
  g.outputs = {g.binary(Op::Add, y, t), y};
  Split s = split(g);
  EXPECT_EQ(s.partition.groups.size(), 2u);
}

/// The types of the values that are stored, the products' own apart, when a value of f32 is rounded
/// to 16 bits for two products of n x n matrices.
std::vector<DType> stored_factors(std::int64_t n) {
  Graph g;
  auto rounded = [&](NodeId x) { return g.cast(g.cast(x, DType::BF16), DType::F32); };
  NodeId x = g.input("x", DType::F32, {n, n}), y = g.input("y", DType::F32, {n, n});
  NodeId a = g.cast(g.input("a", DType::BF16, {n, n}), DType::F32),
         b = g.cast(g.input("b", DType::BF16, {n, n}), DType::F32);
  NodeId factor = rounded(g.unary(Op::Exp, g.binary(Op::Add, x, y)));
  g.outputs = {matmul_node(g, factor, a), matmul_node(g, b, factor)};
  Split s = split(g);
  std::vector<DType> types;
  for (NodeId id = 0; id < s.graph.size(); ++id)
    if (s.partition.stored[id] && s.graph[id].op != Op::ReduceSum)
      types.push_back(s.graph[id].dtype);
  return types;
}

TEST(Partition, AFactorThatProductsReadOftenIsStoredAsTheyFetchIt) {
  EXPECT_EQ(stored_factors(256), std::vector<DType>{DType::BF16});
  // Cheap for one product; of two, the one array costs less than reading both that it is made of.
  EXPECT_EQ(stored_factors(32), std::vector<DType>{DType::BF16});
}

// However much arithmetic the value takes: the conversion is decided with it.
TEST(Partition, AFactorThatIsWidenedForProductsIsNotStoredWide) {
  for (int steps = 0; steps < 20; ++steps) {
    const Shape shape{32, 32};
    Graph g;
    NodeId x = g.input("x", DType::F32, shape);
    for (int i = 0; i < steps; ++i)
      x = g.binary(Op::Add, x, scalar(g, 0.5, shape));
    const NodeId factor = g.cast(g.cast(x, DType::BF16), DType::F32);
    const NodeId a = g.cast(g.input("a", DType::BF16, shape), DType::F32);
    g.outputs = {matmul_node(g, factor, a), matmul_node(g, a, factor)};
    const Split s = split(g);
    for (NodeId id = 0; id < s.graph.size(); ++id)
      EXPECT_FALSE(s.partition.stored[id] && s.graph[id].op != Op::ReduceSum &&
                   s.graph[id].dtype == DType::F32)
          << steps;
  }
}

// A sum that is no product reads each element of its factor many times, in as few bits.
TEST(Partition, AWidenedInputIsReadAsItIs) {
  Graph g;
  const NodeId x = g.cast(g.input("x", DType::BF16, {16, 16}), DType::F32);
  const NodeId weights = g.input("weights", DType::F32, {64});
  const Shape box{64, 16, 16};
  const NodeId terms = g.binary(Op::Mul, g.expand(g.reshape(x, {1, 16, 16}), box),
                                g.expand(g.reshape(weights, {64, 1, 1}), box));
  g.outputs = {g.reduce(Op::ReduceMax, terms, {1}), g.reduce(Op::ReduceMax, terms, {2})};
  const Split s = split(g);
  for (NodeId id = 0; id < s.graph.size(); ++id)
    EXPECT_FALSE(s.partition.stored[id] && s.graph[id].op == Op::Cast);
}

TEST(Partition, AFactorThatProductsReadSeldomIsComputedInThem) {
  for (std::int64_t n : {32, 256}) {
    Graph g;
    NodeId x = g.input("x", DType::F32, {n, n});
    NodeId a = g.cast(g.input("a", DType::BF16, {n, n}), DType::F32);
    g.outputs = {matmul_node(g, g.cast(g.cast(x, DType::BF16), DType::F32), a)};
    EXPECT_EQ(split(g).partition.groups.size(), n < 128 ? 1u : 2u) << n;
  }
}

// Weights of a loop over time that are scaled: two steps scale them while they pack them, of many
// steps each would.
TEST(Partition, ASmallFactorThatManyProductsPackIsStored) {
  for (const std::size_t steps : {2u, 16u}) {
    Graph g;
    const NodeId w = g.input("w", DType::F32, {32, 32});
    const NodeId scaled = g.binary(Op::Mul, w, scalar(g, 0.5, {32, 32}));
    NodeId h = g.input("h", DType::F32, {8, 32});
    for (std::size_t i = 0; i < steps; ++i)
      h = g.unary(Op::Tanh, matmul_node(g, h, scaled));
    g.outputs = {h};
    EXPECT_EQ(split(g).partition.groups.size(), steps < 16 ? steps : steps + 1) << steps;
  }
}

TEST(Partition, SumsThatAreOnlyReadInFewerBitsAreStoredSo) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {64, 32}), b = g.input("b", DType::F32, {32, 48});
  NodeId logits = g.cast(g.cast(matmul_node(g, a, b), DType::BF16), DType::F32);
  g.outputs = {softmax_node(g, logits)};
  Split s = split(g);
  ASSERT_EQ(s.partition.groups.size(), 2u);
  const Group& product = s.partition.groups[0];
  ASSERT_EQ(product.kind, GroupKind::Contraction);
  EXPECT_EQ(s.graph[product.members.back().node].dtype, DType::BF16);
}

// A sum over windows, which is no product: its results are rounded by its kernel where they do not
// fit a cache.
TEST(Partition, LargeSumsThatAreOnlyReadInFewerBitsAreStoredSo) {
  for (const std::int64_t rows : {64, 4096}) {
    Graph g;
    const NodeId x = g.input("x", DType::F32, {rows, 128, 4});
    const NodeId y = g.cast(g.cast(g.reduce(Op::ReduceSum, x, {2}), DType::BF16), DType::F32);
    g.outputs = {softmax_node(g, y)};
    const Split s = split(g);
    std::size_t rounded = 0;
    for (NodeId id = 0; id < s.graph.size(); ++id)
      rounded += s.partition.stored[id] && s.graph[id].dtype == DType::BF16;
    EXPECT_EQ(rounded, rows == 4096 ? 1u : 0u);
  }
}

TEST(Partition, OpByOpWhenFusionIsOff) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {1000});
  g.outputs = {g.unary(Op::Tanh, g.unary(Op::Exp, g.unary(Op::Cos, x)))};
  EXPECT_EQ(split(g, false).partition.groups.size(), 3u);
  Graph m;
  NodeId a = m.input("a", DType::F32, {64, 32}), b = m.input("b", DType::F32, {32, 48});
  m.outputs = {matmul_node(m, a, b)};
  EXPECT_EQ(split(m, false).partition.groups.size(), 1u)
      << "a product of matrices is one operation";
}

TEST(Partition, SaysWhyTwoKernelsStayApart) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {64, 64});
  NodeId y = softmax_node(g, x);
  g.outputs = {g.unary(Op::Exp, g.permute(y, {1, 0})), y};
  Split s = split(g);
  for (const Unfused& u : s.partition.unfused)
    EXPECT_FALSE(u.why.empty());
}

// The form of the only kernel of a graph.
std::string form_of(const Graph& g) {
  Split s = split(g);
  EXPECT_EQ(s.partition.groups.size(), 1u);
  auto regions = build_regions(GraphFacts(s.graph), s.partition, {});
  canonicalize(regions.at(0).region);
  return name_of(kernel::classify(regions.at(0).region));
}

// x[c, l] as windows [c, k, l] = x[c, l + k], by nothing but movements.
NodeId windows(Graph& g, NodeId x, std::int64_t width) {
  const std::int64_t c = g[x].shape[0].value(), l = g[x].shape[1].value(), m = l - width + 1;
  NodeId r = g.expand(g.reshape(x, {c, 1, l}), {c, width + 1, l});
  r = g.shrink(g.reshape(r, {c, (width + 1) * l}), {0, 0}, {c, width * (l + 1)});
  return g.shrink(g.reshape(r, {c, width, l + 1}), {0, 0, 0}, {c, width, m});
}

TEST(Partition, ConvolutionIsAContraction) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {8, 66}), w = g.input("w", DType::F32, {16, 8, 3});
  const Shape box{16, 8, 3, 64};
  NodeId left = g.expand(g.reshape(w, {16, 8, 3, 1}), box);
  NodeId right = g.expand(g.reshape(windows(g, x, 3), {1, 8, 3, 64}), box);
  g.outputs = {relu(g, g.reduce(Op::ReduceSum, g.binary(Op::Mul, left, right), {1, 2}))};
  EXPECT_EQ(form_of(g), "contraction");
}

// One filter a channel: the weights have no axis of their own, so there is nothing to tile.
TEST(Partition, ConvolutionByChannelIsNoContraction) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {8, 66}), w = g.input("w", DType::F32, {8, 3});
  NodeId left = g.expand(g.reshape(w, {8, 3, 1}), {8, 3, 64});
  g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Mul, left, windows(g, x, 3)), {1})};
  EXPECT_NE(form_of(g), "contraction");
}

TEST(Partition, MatmulTakesWhatIsAddedInEitherOrder) {
  for (const bool first : {true, false})
    for (const bool transposed : {true, false}) {
      Graph g;
      NodeId a = g.input("a", DType::F32, {32, 48}), b = g.input("b", DType::F32, {48, 64});
      NodeId c = g.input("c", DType::F32, transposed ? Shape{64, 32} : Shape{32, 64});
      NodeId product = matmul_node(g, a, b), added = transposed ? g.permute(c, {1, 0}) : c;
      g.outputs = {first ? g.binary(Op::Add, added, product) : g.binary(Op::Add, product, added)};
      EXPECT_EQ(form_of(g), "contraction") << first << transposed;
    }
}

TEST(Partition, AxesInAnotherOrderAroundAConversionAreNotCopied) {
  Graph g;
  NodeId a = g.input("a", DType::F32, {8, 24}), b = g.input("b", DType::F32, {24, 16});
  g.outputs = {g.permute(g.cast(g.permute(matmul_node(g, a, b), {1, 0}), DType::BF16), {1, 0})};
  const Split s = split(g);
  EXPECT_EQ(s.partition.groups.size(), 1u) << ir::print(s.graph);
  for (NodeId id = 0; id < s.graph.size(); ++id)
    EXPECT_NE(s.graph[id].op, Op::StopGradient) << ir::print(s.graph);
}

/// |row - column| over a square of `n`.
NodeId distance(Graph& g, std::int64_t n) {
  const NodeId row = g.expand(g.reshape(g.iota(n, DType::I64), {n, 1}), {n, n});
  const NodeId column = g.expand(g.reshape(g.iota(n, DType::I64), {1, n}), {n, n});
  const NodeId minus = g.broadcast(g.constant(Scalar::of(DType::I64, std::int64_t{-1})), {n, n});
  const NodeId apart = g.binary(Op::Add, row, g.binary(Op::Mul, column, minus));
  return g.binary(Op::Max, apart, g.binary(Op::Mul, apart, minus));
}

/// Bytes that all kernels write, and what the report says of values that are not stored.
std::pair<std::int64_t, std::vector<std::string>> written(const Graph& graph) {
  testing::NullDevice device;
  KernelCache cache;
  const CompileReport report = compile_graph(graph, {}, device, cache).report;
  std::int64_t bytes = 0;
  for (const KernelReport& kernel : report.kernels)
    bytes += kernel.bytes_written;
  return {bytes, report.recomputed};
}

TEST(Partition, MasksAndBiasesOfIndicesAreMadeByTheirReaders) {
  constexpr std::int64_t n = 512;
  const auto with = [](const auto& change) {
    Graph g;
    const NodeId scores = g.input("s", DType::F32, {n, n});
    const auto attend = [&](NodeId s) { return softmax_node(g, change(g, s)); };
    g.outputs = {attend(scores), attend(g.unary(Op::Tanh, scores))};
    return written(g);
  };
  const auto plain = with([](Graph&, NodeId s) { return s; });
  const auto dilated = with([](Graph& g, NodeId s) {
    const NodeId four = g.broadcast(g.constant(Scalar::of(DType::I64, std::int64_t{4})), {n, n});
    const NodeId zero = g.broadcast(g.constant(Scalar::of(DType::I64, std::int64_t{0})), {n, n});
    const NodeId near = g.binary(Op::Eq, g.binary(Op::Mod, distance(g, n), four), zero);
    return g.select(near, s, scalar(g, -1e9, {n, n}));
  });
  const auto biased = with([](Graph& g, NodeId s) {
    const NodeId slope = scalar(g, -0.01, {n, n});
    return g.binary(Op::Add, s, g.binary(Op::Mul, g.cast(distance(g, n), DType::F32), slope));
  });
  EXPECT_EQ(dilated.first, plain.first);
  EXPECT_EQ(biased.first, plain.first);
  ASSERT_FALSE(biased.second.empty());
  EXPECT_NE(biased.second[0].find("recomputed: %"), std::string::npos);
  EXPECT_NE(biased.second[0].find("f32[512,512], of indices alone, by 2 readers"),
            std::string::npos)
      << biased.second[0];
}

/// What many points read again and again costs less to store.
TEST(Partition, AMaskThatManyHeadsReadIsStoredWhereItIsDear) {
  constexpr std::int64_t n = 128, heads = 64;
  Graph g;
  const NodeId scores = g.input("s", DType::F32, {heads, n, n});
  NodeId bias = g.cast(distance(g, n), DType::F32);
  for (int i = 0; i < 4; ++i)
    bias = g.unary(Op::Sin, bias);
  const NodeId every = g.expand(g.reshape(bias, {1, n, n}), {heads, n, n});
  g.outputs = {g.binary(Op::Add, scores, every)};
  const auto [bytes, lines] = written(g);
  EXPECT_EQ(bytes, 4 * (heads * n * n + n * n));
}

// Shifts of packed numbers: no launch makes two of them, and no load waits for them.
TEST(Partition, NumbersOfAFewAdditionsAreMadeWhereTheyAreRead) {
  constexpr std::int64_t kRows = 2, kColumns = 8, kDepth = 32;
  Graph g;
  const NodeId x = g.input("x", DType::F32, {kRows, kDepth}),
               packed = g.input("w", DType::U8, {kColumns, kDepth / 2}),
               four = g.broadcast(g.input("four", DType::U8, {}, true), {2}),
               shifts = g.binary(Op::Mul, g.cast(g.iota(2), DType::U8), four);
  const Shape both{kColumns, kDepth / 2, 2};
  const NodeId wide = g.expand(g.reshape(packed, {kColumns, kDepth / 2, 1}), both),
               shifted = g.binary(Op::Shr, wide, g.expand(g.reshape(shifts, {1, 1, 2}), both)),
               codes = g.binary(Op::And, shifted, g.broadcast(g.constant(DType::U8, 15), both)),
               w = g.reshape(g.cast(codes, DType::F32), {1, kColumns, kDepth});
  const Shape box{kRows, kColumns, kDepth};
  const NodeId product =
      g.binary(Op::Mul, g.expand(g.reshape(x, {kRows, 1, kDepth}), box), g.expand(w, box));
  g.outputs = {g.reduce(Op::ReduceSum, product, {2})};
  const GraphFacts facts(g);
  const Partition partition = partition_for_target(facts, true, kernel::Target{});
  EXPECT_FALSE(partition.stored[shifts]);
}

// A CPU divides once for each position instead of once for each element of each row.
TEST(Partition, PositionsOfManyRowsAreStoredOnCpus) {
  const auto kernels = [](std::int64_t rows, Op op) {
    Graph g;
    const NodeId data = g.input("data", DType::F32, {Expr(rows), 30});
    const NodeId far = g.binary(Op::Mul, g.iota(75), g.broadcast(g.constant(DType::I64, 30), {75}));
    const NodeId at = g.binary(Op::IDiv, far, g.broadcast(g.constant(DType::I64, 75), {75}));
    if (op == Op::Gather)
      g.outputs = {g.gather(data, at, 1)};
    else
      g.outputs = {g.scatter(op, data, at, g.input("updates", DType::F32, {Expr(rows), 75}), 1)};
    const GraphFacts facts(g);
    return partition_for_target(facts, true, kernel::Target{}).groups.size();
  };
  EXPECT_EQ(kernels(96, Op::Gather), 2u);
  EXPECT_EQ(kernels(2, Op::Gather), 1u);
  EXPECT_EQ(kernels(96, Op::ScatterAdd), 2u);
}

// A CPU packs an element once for each window that it is in; of a plain load it makes one copy.
TEST(Partition, ValuesInOverlappingWindowsAreStoredOnCpus) {
  const auto kernels = [](const kernel::Target& target, std::int64_t width, bool widens) {
    Graph g;
    const NodeId w = g.input("w", DType::F32, {16, 8, Expr(width)});
    const NodeId x = widens ? g.cast(g.input("x", DType::BF16, {8, 66}), DType::F32)
                            : relu(g, g.input("x", DType::F32, {8, 66}));
    const std::int64_t length = 67 - width;
    const Shape box{16, 8, Expr(width), Expr(length)};
    const NodeId left = g.expand(g.reshape(w, {16, 8, Expr(width), 1}), box);
    const NodeId right =
        g.expand(g.reshape(windows(g, x, width), {1, 8, Expr(width), Expr(length)}), box);
    g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Mul, left, right), {1, 2})};
    const GraphFacts facts(g);
    return partition_for_target(facts, true, target).groups.size();
  };
  const kernel::Target cpu{}, gpu = backend::cuda::known_target(90);
  EXPECT_EQ(kernels(cpu, 3, false), 2u);
  EXPECT_EQ(kernels(cpu, 1, false), 1u);
  EXPECT_EQ(kernels(cpu, 3, true), 1u);
  EXPECT_EQ(kernels(gpu, 3, false), 1u);
}

// Cones are gone through again and again: in large graphs that is what partitioning takes.
TEST(Partition, ViewsAreComposedOnce) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {6});
  const NodeId padded =
      g.pad(x, std::vector<Expr>{1}, std::vector<Expr>{1}, Scalar::of(DType::F32, 0.0));
  g.outputs = {g.unary(Op::Exp, padded)};
  const GraphFacts facts(g);
  const IndexMap frame = IndexMap::flip({8}, std::vector<std::int64_t>{0});
  const IndexMap& first = facts.view_through(padded, frame);
  EXPECT_EQ(first.hash(), compose(frame, facts.view(padded).map).hash());
  EXPECT_EQ(&facts.view_through(padded, frame), &first);
  EXPECT_NE(&facts.view_through(padded, IndexMap::identity({8})), &first);
}

/// The gradient of the mean over all positions is the same for each of them: the attention in front
/// of it stores no weights all the same.
TEST(Partition, AttentionBehindAMeanOfPositionsIsStreamed) {
  egret::Graph cx;
  const Shape shape{4, 8, 1024, 64};
  const auto input = [&](const char* name) {
    Tensor t = cx.tensor(shape, DType::BF16, name);
    t.set_requires_grad();
    return t;
  };
  const Tensor q = input("q"), k = input("k"), v = input("v");
  const Tensor scores = matmul(q, k.transpose(2, 3)) * 0.125;
  const Tensor y = matmul(softmax(scores, -1), v).mean({2}).to(DType::F32);
  const Tensor loss = (y * y).sum();
  const Tensor outputs[] = {loss}, inputs[] = {q, k, v};
  for (Tensor& gradient : grad(outputs, inputs))
    gradient.retrieve();
  testing::NullDevice device(backend::cuda::known_target(90));
  KernelCache cache;
  Options options;
  options.effort = Effort::Quick;
  const Compiled compiled = compile_graph(ir::parse_graph(cx.text()), options, device, cache);
  for (const auto& kernel : compiled.report.kernels)
    EXPECT_LT(kernel.bytes_written, 4 * 8 * 1024 * 1024) << compiled.report.text();
}

} // namespace
} // namespace egret::compiler
