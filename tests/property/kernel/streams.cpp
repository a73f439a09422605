// Attention from its naive formula, and its gradients: on a GPU they are kernels that go through
// the scores tile by tile. All that is asked of these kernels is asked of programs of the reference
// interpreter, which watches for races.
#include "backend/cuda/target.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "kernel/families.h"
#include "kernel/stream_form.h"
#include "support/attention_graphs.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace egret {
namespace {

using testing::Attention;
using testing::Mask;

constexpr double kLowest = -std::numeric_limits<double>::infinity();

class Streams : public ::testing::TestWithParam<Attention> {};

TEST_P(Streams, AgreeWithTheReferenceAndStoreNoScores) {
  const Attention& f = GetParam();
  const ir::Graph graph = attention_graph(f);
  const kernel::Target target = testing::test_gpu();
  const kernel::Generator& generator = kernel::gpu_stream_generator();
  // What a mask of indices leaves out is not looked at: NaN there does not become 0 times NaN.
  const bool special = f.mask == Mask::None || f.mask == Mask::Given;
  const auto inputs = testing::random_inputs(graph, 3, {.special = special, .range = 1});
  const std::int64_t scores = f.batch * f.heads * f.shared * f.queries * f.keys;
  int streams = 0;
  for (const auto& c0 : testing::region_cases(graph, inputs, target)) {
    for (const kernel::Output& out : c0.region.outputs)
      EXPECT_LT(element_count(out.shape).value(), scores) << print(c0.region);
    const auto c = testing::aligned_for(c0, target);
    const auto space = generator.space(c.region, target);
    if (!kernel::find_stream(c.region).ok)
      continue;
    ++streams;
    ASSERT_GE(space.size(), 3u) << print(c.region);
    for (const kernel::Schedule& schedule : space) {
      const std::string wrong =
          testing::check_schedule(c, generator, schedule, target, {.workers = 1 + streams}, true);
      ASSERT_TRUE(wrong.empty()) << wrong;
    }
  }
  EXPECT_EQ(streams, f.gradients ? 2 : 1); // by queries; by keys and values
}

INSTANTIATE_TEST_SUITE_P(All, Streams, ::testing::ValuesIn(testing::attentions()),
                         [](const auto& info) { return std::string(info.param.name); });

/// Warps and blocks that have some of the places each.
class SharedStreams : public ::testing::TestWithParam<Attention> {};

/// How many schedules of the graph's kernels were right.
int check_shared(const ir::Graph& graph, const Attention& f,
                 std::span<const char* const> schedules) {
  const kernel::Target target = testing::test_gpu();
  const kernel::Generator& generator = kernel::gpu_stream_generator();
  const bool special = f.mask == Mask::None || f.mask == Mask::Given;
  const auto inputs = testing::random_inputs(graph, 6, {.special = special, .range = 1});
  int shared = 0;
  for (const auto& c0 : testing::region_cases(graph, inputs, target, {.stored_scores = false})) {
    const auto c = testing::aligned_for(c0, target);
    for (const char* text : schedules) {
      const kernel::Schedule schedule = kernel::parse_schedule(text);
      const kernel::Lowered lowered = generator.lower(c.region, schedule, target);
      if (!lowered.ok)
        continue;
      ++shared;
      // The next launch may come when the first tiles have been asked for.
      const std::string program = kernel::print(lowered.program);
      EXPECT_LT(program.find("copy_async"), program.find("launch_dependents")) << text;
      EXPECT_NE(program.find("launch_dependents"), std::string::npos) << text;
      const std::string wrong =
          testing::check_schedule(c, generator, schedule, target, {.workers = 5}, true);
      EXPECT_TRUE(wrong.empty()) << wrong;
      if (!wrong.empty())
        return -1;
    }
  }
  return shared;
}

constexpr const char* kSharedFragments[] = {
    "gpu_stream across=4 held=1 places=16 stages=2 tall=1 warps=1 @mma=m16n8k16",
    "gpu_stream held=0 places=16 stages=3 tall=1 warps=2 @split_reduce=3 @mma=m16n8k16",
    "gpu_stream across=2 held=1 places=32 stages=2 tall=1 warps=1 @split_reduce=7 @mma=m16n8k16"};
constexpr const char* kSharedThreads[] = {
    "gpu_stream across=4 places=8 stages=2 tall=1 warps=1",
    "gpu_stream places=16 stages=3 tall=2 warps=2 @split_reduce=3",
    "gpu_stream across=2 places=16 stages=2 tall=4 warps=1 @split_reduce=7"};

TEST_P(SharedStreams, AgreeWithTheReference) {
  Attention f = GetParam();
  EXPECT_GE(check_shared(attention_graph(f), f, kSharedFragments), 3);
  f.type = DType::F32;
  EXPECT_GE(check_shared(attention_graph(f), f, kSharedThreads), 3);
}

INSTANTIATE_TEST_SUITE_P(All, SharedStreams, ::testing::ValuesIn(testing::attentions()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(StreamsOf, EmptySizesHaveSchedulesThatLower) {
  const kernel::Target target = testing::test_gpu();
  const kernel::Generator& generator = kernel::gpu_stream_generator();
  for (const DType type : {DType::BF16, DType::F32})
    for (const auto& [batch, queries, keys] :
         {std::tuple{0, 4, 40}, std::tuple{1, 0, 40}, std::tuple{1, 4, 0}}) {
      const Attention f{"", batch, 2,          2,     queries, keys, 16,
                        16, type,  Mask::None, false, false,   false};
      for (const kernel::Region& region : testing::regions_of(attention_graph(f), target))
        for (const kernel::Schedule& schedule : generator.space(region, target))
          EXPECT_NO_THROW(generator.lower(region, schedule, target)) << to_string(schedule);
    }
}

TEST(StreamsOf, QueriesThatAreComputedAreStoredFirst) {
  const kernel::Target target = testing::test_gpu();
  ir::Graph g;
  const Shape half{4, 32};
  const Scalar none = Scalar::of(DType::BF16, 0.0);
  const ir::NodeId x = g.input("x", DType::BF16, half), y = g.input("y", DType::BF16, half);
  const ir::NodeId q = g.binary(Op::Add, g.pad(g.unary(Op::Cos, x), {0, 0}, {0, 32}, none),
                                g.pad(g.unary(Op::Sin, y), {0, 32}, {0, 0}, none));
  const Shape box{4, 200, 64};
  const ir::NodeId k = g.input("k", DType::BF16, {200, 64}),
                   v = g.input("v", DType::BF16, {200, 64});
  const auto times = [&](ir::NodeId a, const Shape& as, ir::NodeId b, const Shape& bs) {
    return g.binary(Op::Mul, g.expand(g.reshape(g.cast(a, DType::F32), as), box),
                    g.expand(g.reshape(g.cast(b, DType::F32), bs), box));
  };
  const ir::NodeId p = g.reduce(Op::ReduceSum, times(q, {4, 1, 64}, k, {1, 200, 64}), {2});
  const ir::NodeId e = g.cast(g.unary(Op::Exp, p), DType::BF16);
  g.outputs = {g.reduce(Op::ReduceSum, times(e, {4, 200, 1}, v, {1, 200, 64}), {1})};
  const auto regions = testing::regions_of(g, target);
  ASSERT_EQ(regions.size(), 2u);
  EXPECT_TRUE(kernel::find_stream(regions[1]).ok) << print(regions[1]);
}

/// Factors of f32 are multiplied by threads: no matrix unit takes them as they are.
class StreamsOfThreads : public ::testing::TestWithParam<Attention> {};

TEST_P(StreamsOfThreads, AgreeWithTheReferenceAndStoreNoScores) {
  Attention f = GetParam();
  f.type = DType::F32;
  const ir::Graph graph = attention_graph(f);
  const kernel::Target target = testing::test_gpu();
  const kernel::Generator& generator = kernel::gpu_stream_generator();
  const bool special = f.mask == Mask::None || f.mask == Mask::Given;
  const auto inputs = testing::random_inputs(graph, 4, {.special = special, .range = 1});
  const std::int64_t scores = f.batch * f.heads * f.shared * f.queries * f.keys;
  int streams = 0;
  for (const auto& c0 : testing::region_cases(graph, inputs, target, {.stored_scores = false})) {
    for (const kernel::Output& out : c0.region.outputs)
      EXPECT_LT(element_count(out.shape).value(), scores) << print(c0.region);
    const auto c = testing::aligned_for(c0, target);
    if (!kernel::find_stream(c.region, kernel::StreamTakes::Vectors).ok)
      continue;
    ++streams;
    const auto space = generator.space(c.region, target);
    ASSERT_GE(space.size(), 3u) << print(c.region);
    // The first, the last, and small tiles, so that there are several of each.
    for (const std::string& text : {to_string(space.front()), to_string(space.back()),
                                    std::string("gpu_stream places=16 stages=3 tall=2 warps=1")}) {
      EXPECT_EQ(text.find("@mma"), std::string::npos) << text;
      const std::string wrong = testing::check_schedule(c, generator, kernel::parse_schedule(text),
                                                        target, {.workers = 1 + streams}, true);
      ASSERT_TRUE(wrong.empty()) << wrong;
    }
  }
  EXPECT_EQ(streams, f.gradients ? 2 : 1); // by queries; by keys and values
}

INSTANTIATE_TEST_SUITE_P(All, StreamsOfThreads, ::testing::ValuesIn(testing::attentions()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(StreamsOf, TwoFactorsOf16BitsAreLeftToMatrixUnits) {
  const kernel::Target target = testing::test_gpu();
  ir::Graph g;
  const Shape box{100, 80, 16};
  // bf16 times bf16, whose products are summed with weights of f32.
  const ir::NodeId a = g.cast(g.input("a", DType::BF16, {100, 16}), DType::F32);
  const ir::NodeId b = g.cast(g.input("b", DType::BF16, {80, 16}), DType::F32);
  const ir::NodeId p = g.reduce(Op::ReduceSum,
                                g.binary(Op::Mul, g.expand(g.reshape(a, {100, 1, 16}), box),
                                         g.expand(g.reshape(b, {1, 80, 16}), box)),
                                {2});
  const ir::NodeId v = g.input("v", DType::F32, {80, 16});
  g.outputs = {g.reduce(Op::ReduceSum,
                        g.binary(Op::Mul, g.expand(g.reshape(p, {100, 80, 1}), box),
                                 g.expand(g.reshape(v, {1, 80, 16}), box)),
                        {1})};
  for (const kernel::Region& region : testing::regions_of(g, target))
    EXPECT_TRUE(kernel::gpu_stream_generator().space(region, target).empty()) << print(region);
}

/// A box of products [rows, places] of bf16, in f32.
ir::NodeId product(ir::Graph& g, const Expr& rows, const Expr& places, std::int64_t depth) {
  const Shape box{rows, places, depth};
  const ir::NodeId a = g.cast(g.input("a", DType::BF16, {rows, depth}), DType::F32);
  const ir::NodeId b = g.cast(g.input("b", DType::BF16, {places, depth}), DType::F32);
  return g.reduce(Op::ReduceSum,
                  g.binary(Op::Mul, g.expand(g.reshape(a, {rows, 1, depth}), box),
                           g.expand(g.reshape(b, {1, places, depth}), box)),
                  {2});
}

int streams_of(const ir::Graph& g) {
  int count = 0;
  for (const kernel::Region& region : testing::regions_of(g, testing::test_gpu()))
    count += kernel::find_stream(region).ok;
  return count;
}

TEST(StreamsOf, SumsOverAProductAreOneKernel) {
  ir::Graph g;
  const ir::NodeId p = product(g, 100, 80, 16);
  g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Mul, p, p), {1})};
  EXPECT_EQ(streams_of(g), 1);
}

TEST(StreamsOf, SizesMayBeSymbols) {
  ir::Graph g;
  const Expr m = Expr::symbol("m", 1, 300), n = Expr::symbol("n", 1, 300);
  const ir::NodeId p = product(g, m, n, 16);
  const ir::NodeId top = g.expand(g.reshape(g.reduce(Op::ReduceMax, p, {1}), {m, 1}), {m, n});
  const ir::NodeId minus = g.broadcast(g.constant(DType::F32, -1.0), {m, n});
  g.outputs = {g.reduce(
      Op::ReduceSum, g.unary(Op::Exp, g.binary(Op::Add, p, g.binary(Op::Mul, top, minus))), {1})};
  const kernel::Target target = testing::test_gpu();
  for (std::uint64_t seed = 1; seed <= 3; ++seed)
    for (const auto& c0 : testing::region_cases(g, testing::random_inputs(g, seed), target)) {
      ASSERT_TRUE(kernel::find_stream(c0.region).ok) << print(c0.region);
      const auto c = testing::aligned_for(c0, target);
      for (const auto& schedule : kernel::gpu_stream_generator().space(c.region, target)) {
        const std::string wrong =
            testing::check_schedule(c, kernel::gpu_stream_generator(), schedule, target, {}, true);
        ASSERT_TRUE(wrong.empty()) << wrong;
      }
    }
}

TEST(StreamsOf, BothAxesAreTwoKernels) {
  ir::Graph g;
  const ir::NodeId p = product(g, 100, 80, 16);
  g.outputs = {g.reduce(Op::ReduceSum, g.unary(Op::Exp, p), {1}),
               g.reduce(Op::ReduceMax, g.unary(Op::Exp, p), {0})};
  EXPECT_EQ(streams_of(g), 2);
}

TEST(StreamsOf, AProductThatIsAResultIsStored) {
  ir::Graph g;
  const ir::NodeId p = product(g, 100, 80, 16);
  g.outputs = {g.reduce(Op::ReduceSum, p, {1}), g.unary(Op::Exp, p)};
  EXPECT_EQ(streams_of(g), 0);
}

TEST(StreamsOf, AProductThatIsReadElsewhereIsStored) {
  ir::Graph g; // by a scan, and at other points than those that were made
  const ir::NodeId p = product(g, 100, 100, 16);
  g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Add, p, g.permute(p, {1, 0})), {1})};
  EXPECT_EQ(streams_of(g), 0);
  ir::Graph h;
  const ir::NodeId q = product(h, 100, 80, 16);
  h.outputs = {h.reduce(Op::ReduceSum, h.scan(Op::ScanSum, q, 1), {1})};
  EXPECT_EQ(streams_of(h), 0);
}

TEST(StreamsOf, ADeepProductIsStored) {
  ir::Graph g;
  g.outputs = {g.reduce(Op::ReduceSum, product(g, 600, 600, 512), {1})};
  EXPECT_EQ(streams_of(g), 0);
}

/// a b^T of 16-bit matrices [rows, depth] and [places, depth], rounded to their type.
ir::NodeId rounded_product(ir::Graph& g, ir::NodeId a, ir::NodeId b) {
  const Expr rows = g[a].shape[0], places = g[b].shape[0], depth = g[a].shape[1];
  const Shape box{rows, places, depth};
  const auto wide = [&](ir::NodeId x, Shape shape) {
    return g.cast(g.expand(g.reshape(x, std::move(shape)), box), DType::F32);
  };
  const ir::NodeId terms =
      g.binary(Op::Mul, wide(a, {rows, 1, depth}), wide(b, {1, places, depth}));
  return g.cast(g.reduce(Op::ReduceSum, terms, {2}), DType::BF16);
}

ir::NodeId sum_of_rows(ir::Graph& g, ir::NodeId x) {
  return g.reduce(Op::ReduceSum, g.unary(Op::Exp, g.cast(x, DType::F32)), {1});
}

// A product that might have been recomputed, and is not, must not keep others from it.

TEST(StreamsOf, AStoredProductMayBeTheFactorOfAnother) {
  for (const std::int64_t depth : {32, 320}) { // wide projections of few features, or of many
    ir::Graph g;
    const ir::NodeId x = g.input("x", DType::BF16, {1600, depth});
    const ir::NodeId both =
        rounded_product(g, x, g.input("w", DType::BF16, {512, depth})); // larger than x and w
    ASSERT_GT(1600 * 512, 1600 * depth + 512 * depth);
    const auto cut = [&](std::int64_t at) { return g.shrink(both, {0, at}, {1600, at + 64}); };
    g.outputs = {sum_of_rows(g, rounded_product(g, cut(0), cut(64)))};
    EXPECT_EQ(streams_of(g), 1) << depth;
  }
}

TEST(StreamsOf, AProductWithAStoredOneIsMadeAgain) {
  ir::Graph g;
  const auto in = [&](const char* name, std::int64_t rows) {
    return g.input(name, DType::BF16, {rows, 32});
  };
  const ir::NodeId bias = rounded_product(g, in("a", 300), in("b", 200));
  const ir::NodeId scores = rounded_product(g, in("q", 300), in("k", 200));
  g.outputs = {sum_of_rows(g, g.binary(Op::Add, scores, bias)), bias};
  EXPECT_EQ(streams_of(g), 1);
  for (const kernel::Region& region : testing::regions_of(g, testing::test_gpu()))
    EXPECT_EQ(region.operands.size(), kernel::find_stream(region).ok ? 3u : 2u) << print(region);
}

TEST(StreamsOf, WhatIsMadeOfAProductIsNotLargerThanIt) {
  ir::Graph g; // the larger product is the one to make again, of the smaller one
  const ir::NodeId small =
      rounded_product(g, g.input("x", DType::BF16, {900, 16}), g.input("w", DType::BF16, {64, 16}));
  g.outputs = {sum_of_rows(g, rounded_product(g, small, g.input("k", DType::BF16, {700, 64})))};
  int streams = 0;
  for (const kernel::Region& region : testing::regions_of(g, testing::test_gpu())) {
    streams += kernel::find_stream(region).ok;
    for (const kernel::Output& out : region.outputs)
      EXPECT_LE(element_count(out.shape).value(), 900 * 64) << print(region);
  }
  EXPECT_EQ(streams, 1);
}

/// The logarithm of a sum of exponentials of each row's scores.
kernel::Region sums_of_exponentials(std::int64_t rows, std::int64_t places,
                                    const kernel::Target& target) {
  ir::Graph g;
  const ir::NodeId p = product(g, rows, places, 256);
  const ir::NodeId maximum = g.reduce(Op::ReduceMax, p, {1});
  const ir::NodeId lower =
      g.binary(Op::Mul, maximum, g.broadcast(g.constant(DType::F32, -1.0), {rows}));
  const ir::NodeId shifted =
      g.binary(Op::Add, p, g.expand(g.reshape(lower, {rows, 1}), {rows, places}));
  g.outputs = {maximum, g.reduce(Op::ReduceSum, g.unary(Op::Exp, shifted), {1})};
  for (const kernel::Region& region : testing::regions_of(g, target))
    if (kernel::find_stream(region).ok)
      return region;
  throw InternalError("no stream");
}

TEST(StreamsOf, FewRowsAndManyPlacesAreLeftToKernelsThatShareOutAllTiles) {
  const kernel::Target target = backend::cuda::known_target(90);
  const kernel::Generator &streams = kernel::gpu_stream_generator(),
                          &tiles = kernel::gpu_row_products_generator();
  const kernel::Region few = sums_of_exponentials(2048, 32000, target),
                       many = sums_of_exponentials(32000, 2048, target),
                       small = sums_of_exponentials(256, 512, target);
  EXPECT_TRUE(streams.space(few, target).empty());
  EXPECT_FALSE(tiles.space(few, target).empty());
  EXPECT_FALSE(streams.space(many, target).empty());
  EXPECT_FALSE(streams.space(small, target).empty());
}

/// A token's queries and all keys before it: scores are few beside the keys.
TEST(StreamsOf, ScoresSmallerThanTheKeysAreMadeWhereOneKernelMakesThemOnce) {
  const kernel::Target target = testing::test_gpu();
  const kernel::Generator& generator = kernel::gpu_stream_generator();
  for (const DType type : {DType::BF16, DType::F32}) {
    Attention f{"", target.workers, 2, 4, 1, 150, 64, 48, type, Mask::None, false, false, false};
    const ir::Graph graph = attention_graph(f);
    const auto inputs = testing::random_inputs(graph, 5, {.special = false, .range = 1});
    const auto cases = testing::region_cases(graph, inputs, target, {.stored_scores = false});
    ASSERT_EQ(cases.size(), 1u);
    const auto c = testing::aligned_for(cases[0], target);
    const auto space = generator.space(c.region, target);
    ASSERT_GE(space.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string wrong =
          testing::check_schedule(c, generator, space[i], target, {.workers = 3}, true);
      ASSERT_TRUE(wrong.empty()) << wrong;
    }
    const kernel::Target queued = backend::cuda::known_target(90);
    const kernel::Schedule first = generator.space(c.region, queued).at(0);
    EXPECT_LE(first.knob("groups", 1), 1) << to_string(first); // of 64 rows
    const std::string wrong =
        testing::check_schedule(c, generator, first, queued, {.workers = 3}, true);
    ASSERT_TRUE(wrong.empty()) << wrong;
    f.batch = 1; // too few tiles, unless the keys are shared out
    f.heads = 1;
    EXPECT_EQ(testing::regions_of(attention_graph(f), target).size(), 1u);
    f.batch = target.workers; // gradients make them again
    f.shared = 1;
    f.gradients = true;
    for (const kernel::Region& region : testing::regions_of(attention_graph(f), target))
      EXPECT_TRUE(generator.space(region, target).empty()) << print(region);
  }
}

TEST(StreamsOf, FactorsOf32BitsAreMultipliedAsTheyAre) {
  ir::Graph g;
  const Shape box{100, 80, 16};
  const ir::NodeId a = g.input("a", DType::F32, {100, 1, 16}),
                   b = g.input("b", DType::F32, {1, 80, 16});
  const ir::NodeId p =
      g.reduce(Op::ReduceSum, g.binary(Op::Mul, g.expand(a, box), g.expand(b, box)), {2});
  g.outputs = {g.reduce(Op::ReduceSum, p, {1})};
  EXPECT_EQ(streams_of(g), 0); // of matrix units
  int count = 0;
  for (const kernel::Region& region : testing::regions_of(g, testing::test_gpu()))
    count += kernel::find_stream(region, kernel::StreamTakes::Vectors).ok;
  EXPECT_EQ(count, 1);
}

/// The stream of masked attention's forward pass.
kernel::Region masked(Mask mask) {
  const Attention f{"", 1, 1, 1, 64, 64, 16, 16, DType::BF16, mask, false, false, false};
  for (const kernel::Region& region : testing::regions_of(attention_graph(f), testing::test_gpu()))
    if (kernel::find_stream(region).ok)
      return region;
  throw InternalError("no stream");
}

/// Rows' sums of exponentials where column < row + right and row < column + left.
kernel::Region banded(std::int64_t right, std::int64_t left, double outside) {
  ir::Graph g;
  const Shape box{100, 80};
  const auto index = [&](std::int64_t dim, std::int64_t plus) {
    const ir::NodeId n = g.iota(box[std::size_t(dim)]);
    const ir::NodeId sum =
        g.binary(Op::Add, n, g.broadcast(g.constant(DType::I64, double(plus)), g[n].shape));
    return g.expand(g.reshape(sum, dim == 0 ? Shape{100, 1} : Shape{1, 80}), box);
  };
  const ir::NodeId other = g.broadcast(g.constant(DType::F32, outside), box);
  const ir::NodeId inner =
      g.select(g.binary(Op::Lt, index(0, 0), index(1, left)), product(g, 100, 80, 16), other);
  const ir::NodeId x = g.select(g.binary(Op::Lt, index(1, 0), index(0, right)), inner, other);
  g.outputs = {g.reduce(Op::ReduceSum, g.unary(Op::Exp, x), {1})};
  return testing::regions_of(g, testing::test_gpu()).at(0);
}

TEST(StreamForms, BoundsComeFromMasksOfIndices) {
  const auto bounds = [](const kernel::Region& region) {
    const kernel::FoundStream found = kernel::find_stream(region);
    EXPECT_TRUE(found.ok) << found.reason;
    return found.form.bounds.size();
  };
  EXPECT_EQ(bounds(masked(Mask::None)), 0u);
  EXPECT_EQ(bounds(masked(Mask::Given)), 0u);
  EXPECT_EQ(bounds(masked(Mask::Causal)), 1u);
  EXPECT_EQ(bounds(banded(1, 9, kLowest)), 2u);
  EXPECT_EQ(bounds(banded(1, 9, -100)), 0u); // exp(-100) counts
}

TEST(StreamForms, TilesBeyondTheBoundsAreLeftOut) {
  const kernel::Region region = banded(1, 9, kLowest);
  const auto lowered = kernel::gpu_stream_generator().lower(
      region, kernel::parse_schedule("gpu_stream warps=1 places=16 held=0 @mma=m16n8k16"),
      testing::test_gpu());
  ASSERT_TRUE(lowered.ok) << lowered.reason;
  // Block b has rows 16 n to 16 n + 15, n being 6 - b, and sees places from 16 n - 8 to 16 n + 15.
  const std::string text = print(lowered.program);
  EXPECT_NE(text.find("from max(-i0, -5) + 5 to min(-i0, -2) + 7"), std::string::npos) << text;
}

TEST(StreamForms, ASoftmaxTakesTwoPasses) {
  const kernel::FoundStream found = kernel::find_stream(masked(Mask::None));
  ASSERT_TRUE(found.ok) << found.reason;
  EXPECT_EQ(found.form.passes, 2); // the maximum and the sum that it scales, then the mixture
  EXPECT_EQ(found.form.products.size(), 1u);
  EXPECT_EQ(found.form.row_stages.size(), 2u);
  EXPECT_EQ(found.form.sums.size(), 1u);
}

// A sum of which a larger maximum changes more than the scale waits for the maximum.
TEST(StreamForms, ASumThatAMaximumDoesNotScaleTakesAPassOfItsOwn) {
  ir::Graph g;
  const ir::NodeId p = product(g, 100, 80, 16);
  const ir::NodeId m = g.expand(g.reshape(g.reduce(Op::ReduceMax, p, {1}), {100, 1}), {100, 80});
  g.outputs = {g.reduce(Op::ReduceSum, g.unary(Op::Tanh, g.binary(Op::Add, p, m)), {1})};
  for (const kernel::Region& region : testing::regions_of(g, testing::test_gpu()))
    if (const auto found = kernel::find_stream(region); found.ok) {
      EXPECT_EQ(found.form.passes, 2);
      EXPECT_EQ(found.form.row_stages.size(), 2u);
      for (int by : found.form.scaled_by)
        EXPECT_EQ(by, -1);
    }
  EXPECT_EQ(streams_of(g), 1);
}

/// Projections that are larger than their factors look like scores themselves, as does the gradient
/// of what is projected behind. They are stored, the larger scores between them are not.
TEST(StreamsOfFunctions, ScoresBetweenProjectionsAreNotStored) {
  constexpr std::int64_t kQueries = 64, kKeys = 512, kFrom = 32, kWidth = 64;
  egret::Graph cx;
  const Tensor queries = cx.tensor({2, kQueries, kWidth}, DType::BF16),
               tokens = cx.tensor({2, kKeys, kFrom}, DType::BF16);
  std::vector<Tensor> weights;
  for (const std::int64_t rows : {kWidth, kFrom, kFrom, kWidth}) {
    weights.push_back(cx.tensor({rows, kWidth}, DType::BF16));
    weights.back().set_requires_grad();
  }
  const auto split = [](const Tensor& t) {
    return t.reshape({t.size(0), t.size(1), 2, kWidth / 2}).permute({0, 2, 1, 3});
  };
  const Tensor y = scaled_dot_product_attention(split(matmul(queries, weights[0])),
                                                split(matmul(tokens, weights[1])),
                                                split(matmul(tokens, weights[2])));
  const Tensor out = matmul(y.permute({0, 2, 1, 3}).reshape({2, kQueries, kWidth}), weights[3]);
  const Tensor sum = queries + out;
  const Tensor first = cx.tensor({kWidth, 4 * kWidth}, DType::BF16),
               second = cx.tensor({4 * kWidth, kWidth}, DType::BF16);
  const Tensor next =
      sum + matmul(gelu(matmul(layer_norm(sum, cx.tensor({kWidth}, DType::BF16)), first)), second);
  const std::vector<Tensor> loss{(next * cos(next)).to(DType::F32).sum()};
  std::vector<Tensor> by = grad(loss, weights);
  ir::Graph g;
  const Pass record("record", [&](const ir::Graph& graph, Notes&) {
    g = passes::normalize()(ir::without_dead_code(graph));
    return graph;
  });
  cx.compile(record, &by[0], &by[1], &by[2], &by[3]);
  for (const kernel::Region& region : testing::regions_of(g, testing::test_gpu()))
    for (const kernel::Output& o : region.outputs)
      EXPECT_LT(element_count(o.shape).value(), 2 * 2 * kQueries * kKeys) << print(region);
}

TEST(StreamsOfFunctions, AttentionWithItsOptionsIsOneStream) {
  const Tensor q = ones({1, 4, 64, 32}, DType::BF16) * 2, shared = ones({1, 2, 64, 32}) * 2,
               own = ones({1, 4, 64, 32}) * 2;
  const AttentionOptions variants[] = {
      {},
      {.causal = true},
      {.causal = true, .window = 16},
      {.window = 16},
      {.causal = true, .softcap = 30},
      {.mask = ones({64, 64}, DType::Bool)},
      {.mask = alibi_mask(4, 64, 64)},
  };
  for (const Tensor& keys : {own, shared})
    for (const AttentionOptions& options : variants) {
      std::vector<Tensor> operands;
      for (const Tensor& t : {q, keys, keys})
        operands.push_back(t.to(DType::BF16).eval());
      const Tensor y = scaled_dot_product_attention(operands[0], operands[1], operands[2], options);
      const ir::Graph g = ir::parse_graph(graph_text(y));
      EXPECT_EQ(streams_of(g), 1) << ir::print(g);
    }
}

} // namespace
} // namespace egret
