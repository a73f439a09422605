// Fusions that other compilers have a rule for: where one kernel makes both, and where not.
#include "compiler/partition.h"
#include "compiler/prepare_outputs.h"
#include "compiler/regions.h"
#include "compiler/sink_reshapes.h"
#include "egret/autodiff.h"
#include "egret/functional.h"
#include "egret/graph.h"
#include "egret/passes.h"
#include "support/graph_runner.h"
#include "support/region_forms.h"
#include "support/region_runner.h"
#include "support/targets.h"
#include "support/update_graphs.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>

namespace egret::compiler {
namespace {

using ir::Graph;
using ir::NodeId;
using testing::add;
using testing::mul;
using testing::number;

std::vector<Group> kernels(const Graph& graph, const PartitionChoices& choices = {}) {
  const Graph g = prepare_outputs(sink_reshapes(passes::normalize()(graph)));
  const GraphFacts facts(g);
  return partition_greedily(facts, true, nullptr, choices).groups;
}

/// x y, the factors turned or not in memory.
NodeId small_matmul(Graph& g, std::int64_t m, std::int64_t k, std::int64_t n, bool left,
                    bool right) {
  NodeId a = g.input("a", DType::F32, left ? Shape{k, m} : Shape{m, k});
  NodeId b = g.input("b", DType::F32, right ? Shape{n, k} : Shape{k, n});
  if (left)
    a = g.permute(a, {1, 0});
  if (!right)
    b = g.permute(b, {1, 0});
  const Shape box{m, n, k};
  return g.reduce(
      Op::ReduceSum,
      mul(g, g.expand(g.reshape(a, {m, 1, k}), box), g.expand(g.reshape(b, {1, n, k}), box)), {2});
}

TEST(Fusions, ProductsOfAnyLayoutTakeWhatIsAddedInEitherOrder) {
  for (int form = 0; form < 8; ++form) {
    Graph g;
    const NodeId product = small_matmul(g, 32, 48, 64, form & 1, form & 2);
    const NodeId c = g.input("c", DType::F32, {32, 64});
    g.outputs = {form & 4 ? add(g, c, product) : add(g, product, c)};
    const auto made = kernels(g);
    ASSERT_EQ(made.size(), 1u) << form;
    EXPECT_EQ(made[0].kind, GroupKind::Contraction) << form;
  }
}

// The gradient of x by x w + c(x) is dy wᵀ and what comes from c.
TEST(Fusions, AGradientThatIsAddedIsPartOfItsProduct) {
  for (const bool first : {true, false}) {
    Graph g;
    const Shape sx{32, 48}, sy{32, 64}, box{32, 64, 48};
    const NodeId x = g.input("x", DType::F32, sx), w = g.input("w", DType::F32, {48, 64}),
                 dy = g.input("dy", DType::F32, sy), dz = g.input("dz", DType::F32, sx);
    const NodeId a = g.expand(g.reshape(x, {32, 1, 48}), box),
                 b = g.expand(g.reshape(g.permute(w, {1, 0}), {1, 64, 48}), box);
    const NodeId y = g.reduce(Op::ReduceSum, mul(g, a, b), {2}),
                 z = mul(g, x, g.input("c", DType::F32, sx));
    const std::array outputs = first ? std::array{y, z} : std::array{z, y};
    const std::array seeds = first ? std::array{dy, dz} : std::array{dz, dy};
    const std::array wrt{x};
    g.outputs = gradients(g, outputs, seeds, wrt);
    const Graph alone = ir::without_dead_code(g);
    const auto made = kernels(alone);
    ASSERT_EQ(made.size(), 1u) << first << ir::print(alone);
    EXPECT_EQ(made[0].kind, GroupKind::Contraction);
  }
}

TEST(Fusions, AProductThatIsAddedToItselfTurnedIsStored) {
  Graph g;
  const NodeId product = small_matmul(g, 64, 48, 64, false, false);
  g.outputs = {add(g, product, g.permute(product, {1, 0}))};
  EXPECT_EQ(kernels(g).size(), 2u) << "its reader needs points of other tiles";
}

TEST(Fusions, AProductTakesNothingThatWaitsForAllOfIt) {
  Graph g;
  const NodeId product = small_matmul(g, 32, 48, 64, false, false);
  const NodeId total = g.reduce(Op::ReduceSum, product, {0, 1});
  g.outputs = {mul(g, product, g.broadcast(total, {32, 64}))};
  EXPECT_GT(kernels(g).size(), 1u);
}

struct GroupNorm {
  Graph g;
  NodeId normalized = 0, silu = 0;

  /// x [n, c, h] normalized over the channels of each group, scaled and shifted by channel.
  explicit GroupNorm(std::int64_t n = 4, std::int64_t c = 32, std::int64_t h = 64,
                     std::int64_t groups = 8) {
    const Shape box{n, groups, c / groups, h}, shape{n, c, h};
    const auto along = [&](NodeId row) { return g.expand(g.reshape(row, {n, groups, 1, 1}), box); };
    const auto mean = [&](NodeId v) {
      return mul(g, g.reduce(Op::ReduceSum, v, {2, 3}),
                 number(g, 1.0 / static_cast<double>(c / groups * h), {n, groups}));
    };
    const auto by_channel = [&](const char* name) {
      return g.expand(g.reshape(g.input(name, DType::F32, {c}), {1, c, 1}), shape);
    };
    const NodeId x = g.reshape(g.input("x", DType::F32, shape), box);
    const NodeId centred = add(g, x, mul(g, along(mean(x)), number(g, -1, box)));
    const NodeId variance = mean(mul(g, centred, centred));
    const NodeId scale =
        g.unary(Op::Recip, g.unary(Op::Sqrt, add(g, variance, number(g, 1e-5, {n, groups}))));
    normalized = add(g, mul(g, g.reshape(mul(g, centred, along(scale)), shape), by_channel("w")),
                     by_channel("b"));
    silu = mul(g, normalized, g.unary(Op::Sigmoid, normalized));
  }
};

TEST(Fusions, GroupNormAndSiluAreOneKernel) {
  GroupNorm norm;
  norm.g.outputs = {norm.silu};
  const auto made = kernels(norm.g);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].kind, GroupKind::Reduce);
  // The rows' generator makes it, on the CPU as on a GPU.
  for (const kernel::Target& target : {testing::test_targets()[0], testing::test_gpu()})
    for (const kernel::Region& region : testing::regions_of(sink_reshapes(norm.g), target))
      EXPECT_NE(kernel::lower_greedily(region, target).schedule.generator.find("rows"),
                std::string::npos);
}

TEST(Fusions, ANormalizedValueWithAnotherReaderIsAResultOfTheSameKernel) {
  GroupNorm norm;
  norm.g.outputs = {norm.silu, norm.normalized};
  const auto made = kernels(norm.g);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(
      testing::regions_of(sink_reshapes(norm.g), testing::test_targets()[0])[0].outputs.size(), 2u);
}

TEST(Fusions, SinkingAReshapeKeepsValues) {
  GroupNorm norm;
  norm.g.outputs = {norm.silu, norm.normalized};
  const Graph sunk = sink_reshapes(norm.g);
  ir::verify(sunk);
  EXPECT_EQ(testing::changed(norm.g, sunk, testing::inputs_of(norm.g, 3, true)), "");
}

// What follows is done where it stands when no reduction goes over rows of the split box.
TEST(Fusions, AReshapeBehindAnElementwiseValueStays) {
  Graph g;
  const NodeId x = g.unary(Op::Exp, g.input("x", DType::F32, {4, 8, 4, 64}));
  g.outputs = {g.unary(Op::Sin, g.reshape(x, {4, 32, 64}))};
  EXPECT_EQ(ir::print(sink_reshapes(g)), ir::print(ir::without_dead_code(g)));
}

/// Each point of a concatenation makes both values where they are not stored.
TEST(Fusions, ValuesThatAreConcatenatedAreComputedThereUnlessTheyAreDear) {
  for (const int times : {1, 12}) {
    Graph g;
    const auto value = [&](Op op, std::int64_t before) {
      NodeId v = g.input("x", DType::F32, {4, 32});
      for (int i = 0; i < times; ++i)
        v = g.unary(op, v);
      return g.pad(v, {0, before}, {0, 32 - before}, Scalar::of(DType::F32, 0.0));
    };
    const NodeId a = value(Op::Cos, 0), b = value(Op::Sin, 32);
    const NodeId middle = g.broadcast(g.constant(Scalar::of(DType::I64, std::int64_t{32})), {64});
    const NodeId first = g.binary(Op::Lt, g.iota(64, DType::I64), middle);
    g.outputs = {g.select(g.expand(g.reshape(first, {1, 64}), {4, 64}), a, b)};
    PartitionChoices in_place;
    in_place.concatenated_in_place = true;
    if (times == 1)
      EXPECT_EQ(kernels(g, in_place).size(), 1u);
    else
      EXPECT_GT(kernels(g, in_place).size(), 1u);
    EXPECT_GT(kernels(g).size(), 1u);
  }
}

/// A product copies parts of a concatenation that lie in memory, and packs those that are computed.
TEST(Fusions, ValuesOfALargeConcatenationThatAProductReadsAreStored) {
  const auto made_with_rows = [](std::int64_t rows) {
    Graph g;
    const auto value = [&](Op op, std::int64_t before) {
      return g.pad(g.unary(op, g.input("x", DType::F32, {rows, 32})), {0, before}, {0, 32 - before},
                   Scalar::of(DType::F32, 0.0));
    };
    const NodeId a = value(Op::Cos, 0), b = value(Op::Sin, 32);
    const NodeId middle = g.broadcast(g.constant(Scalar::of(DType::I64, std::int64_t{32})), {64});
    const NodeId first = g.binary(Op::Lt, g.iota(64, DType::I64), middle);
    const NodeId joined = g.select(g.expand(g.reshape(first, {1, 64}), {rows, 64}), a, b);
    const Shape box{rows, 48, 64};
    const NodeId w = g.input("w", DType::F32, {48, 64});
    g.outputs = {g.reduce(Op::ReduceSum,
                          mul(g, g.expand(g.reshape(joined, {rows, 1, 64}), box),
                              g.expand(g.reshape(w, {1, 48, 64}), box)),
                          {2})};
    PartitionChoices in_place;
    in_place.concatenated_in_place = true;
    return std::pair(kernels(g, in_place).size(), kernels(g).size());
  };
  const auto few = made_with_rows(16), many = made_with_rows(4096);
  EXPECT_LT(few.first, few.second);
  EXPECT_EQ(many.first, many.second);
}

/// A factor of 16 bits that is read many times is stored as one: its operands are computed there.
TEST(Fusions, OperandsOfAConcatenationThatIsStoredAsAFactorAreComputedInIt) {
  for (const DType type : {DType::BF16, DType::F32}) {
    Graph g;
    const auto value = [&](Op op, std::int64_t before) {
      return g.pad(g.unary(op, g.input("x", type, {4096, 32})), {0, before}, {0, 32 - before},
                   Scalar::of(type, 0.0));
    };
    const NodeId a = value(Op::Cos, 0), b = value(Op::Sin, 32);
    const NodeId middle = g.broadcast(g.constant(Scalar::of(DType::I64, std::int64_t{32})), {64});
    const NodeId first = g.binary(Op::Lt, g.iota(64, DType::I64), middle);
    const NodeId joined =
        g.cast(g.select(g.expand(g.reshape(first, {1, 64}), {4096, 64}), a, b), DType::F32);
    const Shape box{4096, 256, 64};
    const NodeId w = g.cast(g.input("w", type, {256, 64}), DType::F32);
    g.outputs = {g.reduce(Op::ReduceSum,
                          mul(g, g.expand(g.reshape(joined, {4096, 1, 64}), box),
                              g.expand(g.reshape(w, {1, 256, 64}), box)),
                          {2})};
    PartitionChoices in_place;
    in_place.concatenated_in_place = true;
    EXPECT_EQ(kernels(g, in_place).size(), type == DType::BF16 ? 2u : 3u);
  }
}

/// A product of 512 x 512 with `columns` computes a factor for each of their tiles.
TEST(Fusions, FactorsThatManyTilesReadAreStoredWhereMatrixUnitsWait) {
  const auto made = [](std::int64_t columns, bool dear, DType dtype, bool stored) {
    Graph g;
    NodeId x = g.input("x", dtype, {512, 512});
    const NodeId scale = g.input("scale", dtype, {512, 512});
    for (int i = 0; i < (dear ? 8 : 1); ++i)
      x = g.binary(Op::Mul, x, scale);
    const Shape box{512, columns, 512};
    const NodeId w = g.input("w", dtype, {columns, 512});
    g.outputs = {g.reduce(Op::ReduceSum,
                          mul(g, g.expand(g.reshape(x, {512, 1, 512}), box),
                              g.expand(g.reshape(w, {1, columns, 512}), box)),
                          {2})};
    PartitionChoices choices;
    choices.factors_stored = stored;
    return kernels(g, choices).size();
  };
  EXPECT_EQ(made(512, true, DType::F32, true), 2u);
  EXPECT_EQ(made(512, true, DType::F32, false), 1u);
  EXPECT_EQ(made(64, true, DType::F32, true), 1u) << "each element is read by one tile";
  EXPECT_EQ(made(512, false, DType::F32, true), 1u) << "it takes one product";
  EXPECT_EQ(made(512, true, DType::F64, true), 1u) << "no matrix unit waits";
}

TEST(Fusions, WhatGoesOverOtherRowsIsAKernelOfItsOwn) {
  GroupNorm norm;
  norm.g.outputs = {norm.g.reduce(Op::ReduceSum, norm.silu, {0})};
  EXPECT_EQ(kernels(norm.g).size(), 2u);
}

/// The regions of a program on a GPU of many multiprocessors.
std::vector<kernel::Region> on_large_gpu(const std::function<Tensor(egret::Graph&)>& make) {
  kernel::Target target = testing::test_gpu();
  testing::set_architecture(target, 90);
  target.workers = 132;
  target.threads = 2048;
  target.blocks = 32;
  target.block_shared_bytes = target.shared_bytes = 227 << 10;
  target.l2_bytes = target.l3_bytes = 50 << 20;
  egret::Graph g;
  make(g).retrieve();
  return testing::regions_of(ir::parse_graph(g.text()), target);
}

TEST(Fusions, FactorsInF32AreStoredForMatrixUnitsOfHopper) {
  const auto kernels_with = [](std::int64_t columns) {
    return on_large_gpu([columns](egret::Graph& g) {
             const Tensor x = g.tensor({512, 512}, DType::F32, "x");
             return matmul((x * 2 + 1) * (x * 3 - 1) * (x + 4) * (x - 5),
                           g.tensor({512, columns}, DType::F32, "w"));
           })
        .size();
  };
  EXPECT_EQ(kernels_with(512), 2u);
  EXPECT_EQ(kernels_with(64), 1u);
}

TEST(Fusions, StepsThatDoubleAreNotAllRecomputedByOneKernel) {
  const auto regions = on_large_gpu([](egret::Graph& g) {
    Tensor total = g.tensor({500, 300}, DType::F32, "x");
    for (const std::int64_t reach : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
      const Tensor before = pad(total[{Slice{}, Slice{0, 300 - reach}}], {0, reach}, {0, 0});
      total = total * before + sin(total);
    }
    return total;
  });
  EXPECT_GT(regions.size(), 1U);
  for (const kernel::Region& region : regions)
    for (const kernel::Stage& stage : region.stages)
      EXPECT_LE(double(stage.body.size()), kLargestKernel) << print(region);
}

TEST(Fusions, AttentionToFewKeysIsOneKernel) {
  for (const std::int64_t keys : {77, 200}) {
    const auto regions = on_large_gpu([&](egret::Graph& g) {
      const Tensor q = g.tensor({2, 4, 1024, 96}, DType::BF16, "q"),
                   k = g.tensor({2, 4, keys, 96}, DType::BF16, "k"),
                   v = g.tensor({2, 4, keys, 96}, DType::BF16, "v");
      return scaled_dot_product_attention(q, k, v);
    });
    EXPECT_EQ(regions.size(), 1U) << keys;
  }
}

} // namespace
} // namespace egret::compiler
