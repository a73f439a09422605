// Kernels that differ only in the place of what they read are one kernel.
#include "backend/cpu/cpu_device.h"
#include "backend/reference/reference.h"
#include "compiler/compile.h"
#include "compiler/pipeline.h"
#include "compiler/rebase_operands.h"
#include "support/plan_runner.h"
#include "support/region_forms.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret::compiler {
namespace {

using backend::reference::HostArray;
using ir::Graph;
using ir::NodeId;

constexpr std::int64_t kWidth = 32;

NodeId product(Graph& g, NodeId a, NodeId b) {
  const std::int64_t rows = g[a].shape[0].value();
  const Shape all = {rows, kWidth, kWidth};
  const NodeId left = g.expand(g.reshape(a, {rows, 1, kWidth}), all);
  const NodeId right = g.expand(g.reshape(g.permute(b, {1, 0}), {1, kWidth, kWidth}), all);
  return g.reduce(Op::ReduceSum, g.binary(Op::Mul, left, right), {2});
}

NodeId rows_of(Graph& g, NodeId x, std::int64_t first, std::int64_t count) {
  const std::int64_t width = g[x].shape[1].value();
  return g.shrink(x, {first, 0}, {first + count, width});
}

/// h = tanh(x[t] w + h u) at each step, with 8 rows of x a step. All h are results.
Graph unrolled(int steps) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {8 * steps, kWidth});
  const NodeId w = g.input("w", DType::F32, {kWidth, kWidth});
  const NodeId u = g.input("u", DType::F32, {kWidth, kWidth});
  NodeId h = g.input("h", DType::F32, {8, kWidth});
  for (int t = 0; t < steps; ++t) {
    const NodeId read = product(g, rows_of(g, x, 8 * t, 8), w);
    h = g.unary(Op::Tanh, g.binary(Op::Add, read, product(g, h, u)));
    g.outputs.push_back(h);
  }
  return g;
}

/// Runs the graph on the device and by the interpreter, and compares with the reference.
Compiled checked(const Graph& g, bool fuse = true) {
  const auto device = backend::cpu::make_cpu_device(2);
  KernelCache cache;
  Options options;
  options.fuse = fuse;
  Compiled compiled = compile_graph(g, options, *device, cache);
  std::vector<HostArray> inputs = testing::inputs_of(g, 5, false);
  const auto expected = backend::reference::expect(g, inputs, g.outputs);
  for (backend::Device* on : {device.get(), static_cast<backend::Device*>(nullptr)}) {
    const auto results = testing::run_plan(compiled, g, inputs, on);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto comparison = backend::reference::compare(results[i], expected[i], "output");
      EXPECT_TRUE(comparison.ok) << i << ": " << comparison.message;
    }
  }
  return compiled;
}

TEST(RebaseOperands, StepsOfAnUnrolledLoopAreCompiledOnce) {
  const Compiled few = checked(unrolled(4)), many = checked(unrolled(12));
  EXPECT_EQ(few.plan.kernels.size(), many.plan.kernels.size());
  EXPECT_EQ(few.report.kernels_compiled, many.report.kernels_compiled);
  EXPECT_EQ(3 * few.plan.steps.size(), many.plan.steps.size());
}

TEST(RebaseOperands, SlicesOfArraysOfAnySizeAreOneKernel) {
  Graph g;
  for (const std::int64_t rows : {3, 17, 40}) {
    const NodeId x = g.input("x", DType::F32, {rows, 4096});
    g.outputs.push_back(g.unary(Op::Exp, rows_of(g, x, rows - 2, 1)));
  }
  EXPECT_EQ(checked(g, false).plan.kernels.size(), 1U);
}

TEST(RebaseOperands, ReadWhatTheyReadBefore) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {7, 5}), y = g.input("y", DType::F16, {7, 5});
  for (const NodeId from : {x, y})
    for (int i = 0; i < 5; ++i) {
      g.outputs.push_back(g.unary(Op::Exp, rows_of(g, from, i, 3)));
      g.outputs.push_back(g.unary(Op::Exp, g.shrink(from, {1, i}, {6, i + 1})));
      g.outputs.push_back(g.flip(g.shrink(from, {i, 1}, {i + 2, 4}), {0, 1}));
      g.outputs.push_back(
          g.pad(rows_of(g, from, i, 2), {1, 1}, {0, 2}, Scalar::of(g[from].dtype, 3.0)));
      g.outputs.push_back(g.reduce(Op::ReduceSum, g.shrink(from, {i, 0}, {7, 4}), {0}));
    }
  checked(g);
  checked(g, false);
}

BuiltRegion slice_of(std::int64_t first, std::int64_t rows) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {rows, 6});
  g.outputs = {g.unary(Op::Exp, g.shrink(x, {first, 0}, {first + 2, 6}))};
  kernel::Target target;
  target.device = "cpu";
  std::vector<BuiltRegion> regions = partition_for(*normal_form(g), {}, target).regions;
  regions.at(0).region.operands[0].alignment = 64;
  rebase_operands(regions);
  return regions[0];
}

TEST(RebaseOperands, KeepWhatIsLeftOfTheAlignment) {
  const BuiltRegion none = slice_of(0, 9), one = slice_of(1, 9), eight = slice_of(8, 10);
  EXPECT_EQ(offset_of(none, 0), 0);
  EXPECT_EQ(offset_of(one, 0), 24);
  EXPECT_EQ(offset_of(eight, 0), 192);
  EXPECT_EQ(none.region.operands[0].alignment, 64);
  EXPECT_EQ(one.region.operands[0].alignment, 8);
  EXPECT_EQ(kernel::hash_of(eight.region), kernel::hash_of(none.region));
  EXPECT_NE(kernel::hash_of(one.region), kernel::hash_of(none.region));
  EXPECT_EQ(none.region.operands[0].shape[0].value(), 12);
}

/// Step `t` reads its rows of `width` elements, and each element the one two places before it.
BuiltRegion step_beside(std::int64_t t, std::int64_t steps, std::int64_t width) {
  constexpr std::int64_t kRows = 4;
  Graph g;
  const NodeId x = g.input("x", DType::F32, {steps, kRows, width});
  const NodeId own = g.shrink(x, {t, 0, 0}, {t + 1, kRows, width});
  const NodeId before = g.pad(g.shrink(own, {0, 0, 0}, {1, kRows, width - 2}), {0, 0, 2}, {0, 0, 0},
                              Scalar::of(DType::F32, 0.0));
  g.outputs = {g.binary(Op::Add, g.unary(Op::Exp, own), before)};
  kernel::Target target;
  target.device = "cpu";
  std::vector<BuiltRegion> regions = partition_for(*normal_form(g), {}, target).regions;
  EXPECT_EQ(regions.size(), 1U);
  regions.at(0).region.operands[0].alignment = 64;
  rebase_operands(regions);
  return regions[0];
}

TEST(RebaseOperands, HolesDoNotKeepTheFirstElementFromBeingKnown) {
  for (const std::int64_t width : {8, 9}) {
    const BuiltRegion one = step_beside(1, 9, width);
    for (const std::int64_t t : {2, 7, 8}) {
      const BuiltRegion step = step_beside(t, 9, width);
      EXPECT_EQ(offset_of(step, 0), t * 4 * width * 4) << "not what conditions leave out";
      EXPECT_EQ(step.region.operands[0].shape[0].value(), 4 * width);
      EXPECT_GE(step.region.operands[0].alignment, 16);
      if (step.region.operands[0].alignment == one.region.operands[0].alignment) {
        EXPECT_EQ(kernel::hash_of(step.region), kernel::hash_of(one.region));
      }
    }
  }
}

/// h = a map of h and of the step's rows, each with its neighbours: as CTC's loss.
TEST(RebaseOperands, StepsThatReadNeighboursAreCompiledOnce) {
  const auto steps_of = [](std::int64_t steps) {
    constexpr std::int64_t kRows = 16, kPlaces = 12;
    Graph g;
    const NodeId x = g.input("x", DType::F32, {steps, kRows, kPlaces});
    const auto beside = [&](NodeId a) {
      return g.pad(g.shrink(a, {0, 0}, {kRows, kPlaces - 1}), {0, 1}, {0, 0},
                   Scalar::of(DType::F32, 0.0));
    };
    NodeId h = g.input("h", DType::F32, {kRows, kPlaces});
    for (std::int64_t t = 0; t < steps; ++t) {
      const NodeId row =
          g.reshape(g.shrink(x, {t, 0, 0}, {t + 1, kRows, kPlaces}), {kRows, kPlaces});
      const NodeId near = g.binary(Op::Add, beside(h), g.unary(Op::Exp, beside(row)));
      h = g.unary(Op::Tanh, g.binary(Op::Add, near, g.binary(Op::Mul, h, row)));
      g.outputs.push_back(h);
    }
    return g;
  };
  const Compiled few = checked(steps_of(4)), many = checked(steps_of(9));
  EXPECT_EQ(few.plan.kernels.size(), many.plan.kernels.size());
}

TEST(RebaseOperands, LeaveWholeArraysAlone) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {64, kWidth});
  g.outputs = {g.unary(Op::Exp, x)};
  kernel::Target target;
  target.device = "cpu";
  std::vector<BuiltRegion> regions = with_launches(*normal_form(g), {}, target).regions;
  EXPECT_TRUE(regions.at(0).offsets.empty());
}

} // namespace
} // namespace egret::compiler
