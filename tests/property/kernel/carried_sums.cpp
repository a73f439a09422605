// Sums of columns beside rows, as the gradients of a norm have them: one kernel of a GPU, right
// with every schedule and whatever the shares of the rows.
#include "support/region_forms.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;

struct Norm {
  std::int64_t rows, columns;
  DType type;
};

NodeId mul(Graph& g, NodeId a, NodeId b) {
  return g.binary(Op::Mul, a, b);
}

/// Of rows scaled to one square sum: the gradients by the rows, by a weight of each column and by
/// what is added to it, in two sums more than the forward pass has.
void gradients(Graph& g, const Norm& n) {
  const Shape s{n.rows, n.columns};
  auto wide = [&](NodeId x) { return n.type == DType::F32 ? x : g.cast(x, DType::F32); };
  auto narrow = [&](NodeId x) { return n.type == DType::F32 ? x : g.cast(x, n.type); };
  auto along = [&](NodeId r) { return g.expand(g.reshape(r, {n.rows, 1}), s); };
  const NodeId x = wide(g.input("x", n.type, s)), up = wide(g.input("up", n.type, s));
  const NodeId w = g.expand(g.reshape(wide(g.input("w", n.type, {n.columns})), {1, n.columns}), s);
  const NodeId squares = g.reduce(Op::ReduceSum, mul(g, x, x), {1});
  const NodeId scale = g.unary(
      Op::Recip, g.unary(Op::Sqrt, g.binary(Op::Add, squares,
                                            g.broadcast(g.constant(DType::F32, 1.0), {n.rows}))));
  const NodeId weighted = mul(g, up, w);
  const NodeId dot = mul(g, g.reduce(Op::ReduceSum, mul(g, weighted, x), {1}),
                         mul(g, scale, mul(g, scale, scale)));
  const NodeId minus = g.broadcast(g.constant(DType::F32, -1.0), s);
  const NodeId by_x =
      g.binary(Op::Add, mul(g, weighted, along(scale)), mul(g, minus, mul(g, x, along(dot))));
  const NodeId by_w = g.reduce(Op::ReduceSum, mul(g, up, mul(g, x, along(scale))), {0});
  const NodeId by_b = g.reduce(Op::ReduceSum, up, {0});
  g.outputs = {narrow(by_x), narrow(by_w), narrow(by_b)};
}

/// Whose cache does not hold what small rows read.
kernel::Target small_gpu() {
  kernel::Target target = testing::test_gpu();
  target.l2_bytes = 512;
  return target;
}

class CarriedSums : public ::testing::TestWithParam<Norm> {};

TEST_P(CarriedSums, AreOneKernelThatAgreesWithTheReference) {
  Graph g;
  gradients(g, GetParam());
  const kernel::Target target = small_gpu();
  for (bool special : {false, true}) {
    const auto cases = testing::region_cases(g, testing::inputs_of(g, 3, special), target);
    ASSERT_EQ(cases.size(), 1u);
    ASSERT_EQ(kernel::lower_greedily(cases[0].region, target).schedule.generator, "gpu_rows");
    for (int workers : {1, 3})
      EXPECT_EQ(testing::check_generators(cases[0], target, {.workers = workers}), "");
  }
}

TEST_P(CarriedSums, DoNotDependOnTheShares) {
  Graph g;
  gradients(g, GetParam());
  const kernel::Target target = small_gpu();
  const auto cases = testing::region_cases(g, testing::inputs_of(g, 7, false), target);
  const auto chosen = kernel::lower_greedily(cases.at(0).region, target);
  const kernel::Generator& rows = testing::generator_named("gpu_rows", target);
  for (std::int64_t run : {1, 2, 5, 64}) {
    kernel::Schedule s = chosen.schedule;
    s.knobs["run"] = run;
    EXPECT_EQ(testing::check_schedule(cases[0], rows, s, target, {.workers = 2}, true), "") << run;
  }
  kernel::Schedule without = chosen.schedule;
  without.knobs.erase("run");
  EXPECT_EQ(rows.lower(cases[0].region, without, target).reason,
            "sums of columns are carried along runs of rows");
}

INSTANTIATE_TEST_SUITE_P(All, CarriedSums,
                         ::testing::Values(Norm{17, 64, DType::F32}, Norm{40, 264, DType::BF16},
                                           Norm{33, 520, DType::F32}, Norm{64, 64, DType::BF16},
                                           Norm{2, 96, DType::F32}));

/// The updates of a parameter that the rows read stay in place, and with them kernels of their own.
TEST(CarriedSumsOf, WeightsThatAreUpdatedStayApart) {
  Graph g;
  gradients(g, {32, 64, DType::F32});
  const NodeId w = g.inputs().at(2);
  g.outputs = {g.outputs[0], g.binary(Op::Add, w, g.outputs[1])};
  EXPECT_EQ(testing::regions_of(g, small_gpu()).size(), 2u);
}

TEST(CarriedSumsOf, WhatIsInTheCacheIsReadAgain) {
  Graph g;
  gradients(g, {32, 64, DType::F32});
  EXPECT_EQ(testing::regions_of(g, small_gpu()).size(), 1u);
  kernel::Target target = small_gpu();
  target.l2_bytes = 1 << 20;
  EXPECT_GT(testing::regions_of(g, target).size(), 1u);
}

// A norm's epsilon comes by value where the sums make a row's scale again.
TEST(CarriedSumsOf, NumbersByValueMayStandInThem) {
  Graph g;
  gradients(g, {32, 64, DType::F32});
  const Shape s{32, 64};
  const NodeId x = g.inputs().at(0), up = g.inputs().at(1);
  const NodeId number = g.broadcast(g.input("number", DType::F32, {}, true), s);
  g.outputs[1] = g.reduce(Op::ReduceSum, mul(g, up, mul(g, x, number)), {0});
  const auto cases = testing::region_cases(g, testing::inputs_of(g, 3, false), small_gpu());
  for (const auto& c : cases)
    EXPECT_EQ(testing::check_generators(c, small_gpu()), "");
}

TEST(CarriedSumsOf, ACpusRowsAreNone) {
  Graph g;
  gradients(g, {32, 64, DType::F32});
  EXPECT_GT(testing::regions_of(g, testing::test_targets().at(0)).size(), 1u);
}

} // namespace
} // namespace egret
