// Which independent kernels share a launch, and which do not.
#include "backend/cpu/cpu_device.h"
#include "backend/cuda/target.h"
#include "backend/reference/kernel_check.h"
#include "backend/reference/program_interpreter.h"
#include "backend/reference/reference.h"
#include "compiler/batching.h"
#include "compiler/pipeline.h"
#include "compiler/plan_builder.h"
#include "compiler/prepare_outputs.h"
#include "kernel/code_length.h"
#include "kernel/parts.h"
#include "support/null_device.h"
#include "support/plan_runner.h"
#include "support/region_forms.h"
#include "support/region_runner.h"
#include "support/update_graphs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace egret::compiler {
namespace {

using backend::reference::HostArray;
using ir::Graph;
using ir::NodeId;
using testing::add;
using testing::momentum_update;
using testing::mul;
using testing::number;

NodeId gradient(Graph& g, const Shape& shape) {
  return g.input("g", DType::F32, shape);
}

struct Ran {
  CompileReport report;
  std::vector<HostArray> results;
};

/// Compiles and runs the graph, and compares with the reference.
Ran run_batched(const Graph& g, const std::vector<OutputSpec>& outputs, bool fuse = true) {
  const auto device = backend::cpu::make_cpu_device(2);
  KernelCache cache;
  Options options;
  options.fuse = fuse;
  options.outputs = outputs;
  const Compiled compiled = compile_graph(g, options, *device, cache);
  std::vector<HostArray> inputs = testing::inputs_of(g, 5, false);
  const auto expected = backend::reference::expect(g, inputs, g.outputs);
  Ran ran{compiled.report, testing::run_plan(compiled, g, inputs, device.get())};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto comparison = backend::reference::compare(ran.results[i], expected[i], "output");
    EXPECT_TRUE(comparison.ok) << i << ": " << comparison.message;
  }
  return ran;
}

TEST(Kernels, APaddedNumberThatComesByValueHasItsFill) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {});
  g.outputs = {g.pad(g.reshape(x, {1}), {2}, {37}, Scalar::of(DType::F32, 7.0)),
               g.pad(g.reshape(x, {1}), {1}, {0}, Scalar::of(DType::F32, 0.0))};
  run_batched(g, {{}, {}});
}

TEST(Batching, ManySmallUpdatesAreOneLaunch) {
  Graph g;
  std::vector<OutputSpec> outputs;
  const std::vector<Shape> shapes{{64}, {10}, {16, 24}, {1}, {128}, {7, 3}};
  for (const Shape& shape : shapes)
    momentum_update(g, outputs, shape, gradient(g, shape));
  const Ran ran = run_batched(g, outputs);
  ASSERT_EQ(ran.report.kernels.size(), 1u);
  EXPECT_EQ(ran.report.kernels[0].parts, 6);
  EXPECT_EQ(ran.report.copies, 0) << "states are written in place";
  EXPECT_NE(ran.report.text().find("6 independent parts"), std::string::npos);
  EXPECT_NE(ran.report.kernels[0].schedule.find("batch"), std::string::npos);
  for (const KernelReport& k : run_batched(g, outputs, false).report.kernels)
    EXPECT_EQ(k.parts, 1) << "a kernel for each operation";
}

// Each with a number of its own that comes by value, as lazy code has a learning rate at each use.
TEST(Batching, UpdatesWithNumbersOfTheirOwnShareACode) {
  Graph g;
  for (std::int64_t size = 40; size < 90; ++size) {
    const NodeId w = g.input("w", DType::F32, {size}), by = g.input("rate", DType::F32, {}, true);
    g.outputs.push_back(add(g, w, mul(g, gradient(g, {size}), g.broadcast(by, {size}))));
  }
  const Ran ran = run_batched(g, std::vector<OutputSpec>(50));
  ASSERT_EQ(ran.report.kernels.size(), 1u) << ran.report.text();
  EXPECT_EQ(ran.report.kernels[0].parts, 50);
  EXPECT_EQ(ran.report.kernels[0].schedule.find("apart"), std::string::npos);
}

TEST(Batching, SumsOfRowsAndColumnsShareALaunch) {
  Graph g;
  std::vector<OutputSpec> outputs;
  momentum_update(g, outputs, {10}, g.reduce(Op::ReduceSum, gradient(g, {16, 10}), {0}));
  momentum_update(g, outputs, {32}, g.reduce(Op::ReduceSum, gradient(g, {32, 16}), {1}));
  momentum_update(g, outputs, {5, 5}, gradient(g, {5, 5}));
  const Ran ran = run_batched(g, outputs);
  ASSERT_EQ(ran.report.kernels.size(), 2u) << "a map is not of their kind";
  EXPECT_EQ(ran.report.kernels[0].parts + ran.report.kernels[1].parts, 3);
}

// Clipping by the norm of all gradients: every update waits for it, then all run at once.
TEST(Batching, UpdatesBehindACommonFactorAreOneLaunch) {
  Graph g;
  std::vector<OutputSpec> outputs;
  const std::vector<Shape> shapes{{64}, {10}, {33}};
  std::vector<NodeId> gradients;
  NodeId total = g.constant(DType::F32, 0);
  for (const Shape& shape : shapes) {
    gradients.push_back(gradient(g, shape));
    total = add(g, total, g.reduce(Op::ReduceSum, mul(g, gradients.back(), gradients.back()), {0}));
  }
  const NodeId scale = g.unary(Op::Recip, add(g, total, g.constant(DType::F32, 1)));
  for (std::size_t i = 0; i < shapes.size(); ++i)
    momentum_update(g, outputs, shapes[i], mul(g, gradients[i], g.broadcast(scale, shapes[i])));
  const Ran ran = run_batched(g, outputs);
  ASSERT_EQ(ran.report.kernels.size(), 3u) << ran.report.text();
  // The last of the sums is in one kernel with the norm and its own update.
  EXPECT_EQ(ran.report.kernels[0].parts, 2);
  EXPECT_EQ(ran.report.kernels[1].parts, 1);
  EXPECT_EQ(ran.report.kernels[2].parts, 2);
}

TEST(Batching, KernelsThatDependOnEachOtherStayApart) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {12, 20});
  const NodeId rows = g.reduce(Op::ReduceSum, x, {1});
  // Another reduction of what every row is needed for.
  g.outputs = {rows, g.reduce(Op::ReduceMax, g.unary(Op::Cos, rows), {0})};
  const Ran ran = run_batched(g, {});
  EXPECT_EQ(ran.report.kernels.size(), 2u);
  for (const KernelReport& k : ran.report.kernels)
    EXPECT_EQ(k.parts, 1);
}

TEST(Batching, WhoReadsAStateStaysApartFromWhoOverwritesIt) {
  Graph g;
  std::vector<OutputSpec> outputs;
  momentum_update(g, outputs, {40}, gradient(g, {40}));
  // Reads the old parameter at other points than those that the update writes.
  const NodeId p = g.inputs()[1];
  g.outputs.push_back(g.reduce(Op::ReduceSum, g.reshape(g.flip(p, {0}), {8, 5}), {1}));
  outputs.push_back({});
  const Ran ran = run_batched(g, outputs);
  EXPECT_EQ(ran.report.kernels.size(), 2u);
  EXPECT_EQ(ran.report.copies, 0);
}

/// A program runs what depends on nothing but numbers once: not in a launch with what it runs
/// again.
TEST(Batching, TablesStayApartFromWhatIsMadeOfInputs) {
  Graph g;
  const NodeId table = g.reduce(
      Op::ReduceSum, g.unary(Op::Cos, g.cast(g.reshape(g.iota(8 * 48), {8, 48}), DType::F32)), {1});
  const NodeId rows = g.reduce(Op::ReduceSum, g.input("x", DType::F32, {8, 64}), {1});
  const NodeId other = g.reduce(Op::ReduceSum, g.input("y", DType::F32, {5, 64}), {1});
  g.outputs = {mul(g, rows, table), other};
  const Ran ran = run_batched(g, {{}, {}});
  int tables = 0;
  for (const KernelReport& k : ran.report.kernels) {
    tables += k.bytes_read == 0;
    EXPECT_EQ(k.parts, k.bytes_read == 0 ? 1 : 2) << k.name;
  }
  EXPECT_EQ(tables, 1);
}

TEST(Batching, LargeKernelsStayAlone) {
  Graph g;
  std::vector<OutputSpec> outputs;
  for (std::int64_t n : {1 << 20, 1 << 19})
    momentum_update(g, outputs, {n}, gradient(g, {n}));
  for (std::int64_t n : {30, 40})
    momentum_update(g, outputs, {n}, gradient(g, {n}));
  const Ran ran = run_batched(g, outputs);
  ASSERT_EQ(ran.report.kernels.size(), 3u);
  std::vector<int> parts;
  for (const KernelReport& k : ran.report.kernels)
    parts.push_back(k.parts);
  std::sort(parts.begin(), parts.end());
  EXPECT_EQ(parts, (std::vector{1, 1, 2}));
}

TEST(Batching, UpdatesThatDifferInTheirSizesAreOneLaunch) {
  Graph g;
  std::vector<OutputSpec> outputs;
  for (std::int64_t n = 0; n < 40; ++n)
    momentum_update(g, outputs, {10 + n}, gradient(g, {10 + n}));
  const Ran ran = run_batched(g, outputs);
  ASSERT_EQ(ran.report.kernels.size(), 1u) << "they differ in their sizes only";
  EXPECT_EQ(ran.report.kernels[0].parts, 40);
}

TEST(Batching, ABatchHasABoundedNumberOfForms) {
  Graph g;
  for (int i = 0; i < 40; ++i) {
    const Shape shape{16};
    const NodeId x = g.input("x", DType::F32, shape);
    g.outputs.push_back(g.unary(Op::Cos, mul(g, x, number(g, 2 + i, shape))));
  }
  const Ran ran = run_batched(g, {});
  ASSERT_EQ(ran.report.kernels.size(), 3u) << "codes of 16 forms at the most are compiled as one";
  EXPECT_EQ(ran.report.kernels[0].parts, 16);
}

// As many as the parameters of a launch hold, of which there are seven for each here.
TEST(Batching, AGpuUpdates300TensorsInTwoLaunches) {
  const kernel::Target gpu = backend::cuda::known_target(90);
  Graph g;
  std::vector<OutputSpec> outputs;
  for (std::int64_t i = 0; i < 300; ++i) {
    const Shape shape{1 + i * 2741 % 5000};
    momentum_update(g, outputs, shape, gradient(g, shape));
  }
  const CandidateGraph prepared(prepare_outputs(g));
  Partitioned parts = partition_for(prepared, {}, gpu);
  ASSERT_EQ(parts.regions.size(), 300u);
  batch_small_kernels(prepared.graph(), parts.regions, outputs, gpu);
  EXPECT_LE(parts.regions.size(), 2u);
  for (const BuiltRegion& built : parts.regions)
    EXPECT_LE(kernel::lower_greedily(built.region, gpu).program.groups.size(), 1u);
}

TEST(Batching, SymbolicSizesShareALaunch) {
  Graph g;
  const Expr n = Expr::symbol("n", 1, 100);
  const NodeId x = g.input("x", DType::F32, {n}), y = g.input("y", DType::F32, {n, 3});
  g.outputs = {g.unary(Op::Cos, x), g.unary(Op::Exp, y)};
  const Ran ran = run_batched(g, {});
  ASSERT_EQ(ran.report.kernels.size(), 1u);
  EXPECT_EQ(ran.report.kernels[0].parts, 2);
}

// Values that wait for a batch, or for their readers, must still be in the cache when they are
// read.
TEST(Batching, WhatWouldKeepMuchMemoryStaysApart) {
  kernel::Target target = testing::test_targets()[0];
  const auto kernels = [&] {
    Graph g;
    // Sums are stored, and scans read them.
    for (std::int64_t n : {64, 72})
      g.outputs.push_back(
          g.scan(Op::ScanSum, g.reduce(Op::ReduceSum, g.input("x", DType::F32, {n, 8}), {1}), 0));
    const CandidateGraph prepared(prepare_outputs(g));
    Partitioned parts = partition_for(prepared, {}, target);
    batch_small_kernels(prepared.graph(), parts.regions, {}, target);
    return parts.regions.size();
  };
  EXPECT_EQ(kernels(), 3u);
  target.l2_bytes = 512;
  EXPECT_EQ(kernels(), 4u);
}

// On a GPU the block's number selects the part, in blocks of one size.
TEST(Batching, AGpuHasOneGridForAll) {
  const kernel::Target gpu = testing::test_gpu();
  Graph g;
  std::vector<OutputSpec> outputs;
  for (std::int64_t n : {64, 1000, 8})
    momentum_update(g, outputs, {n}, gradient(g, {n}));
  const CandidateGraph prepared(prepare_outputs(g));
  Partitioned parts = partition_for(prepared, {}, gpu);
  ASSERT_EQ(parts.regions.size(), 3u);
  batch_small_kernels(prepared.graph(), parts.regions, outputs, gpu);
  ASSERT_EQ(parts.regions.size(), 1u);
  const kernel::Chosen chosen = kernel::lower_greedily(parts.regions[0].region, gpu);
  EXPECT_EQ(chosen.schedule.generator, "batch");
  EXPECT_EQ(chosen.program.launch.threads, 256);
  EXPECT_GE(chosen.program.launch.workers.value(), 3);
}

/// New rows of two caches, as in a step of decoding, and a map. `from`: the second cache's new row
/// is read from the first one.
struct TwoUpdates {
  Graph g;
  std::vector<OutputSpec> outputs;
  explicit TwoUpdates(bool from = false) {
    const NodeId at = g.input("at", DType::I64, {1});
    NodeId row = g.input("row", DType::F32, {4, 1, 16});
    for (const char* name : {"keys", "values"}) {
      const NodeId cache = g.input(name, DType::F32, {4, 40, 16});
      const NodeId updated = g.scatter(Op::ScatterSet, cache, at, g.unary(Op::Cos, row), 1);
      g.outputs.push_back(updated);
      outputs.push_back({static_cast<std::int64_t>(g[cache].attrs.slot)});
      if (from)
        row = g.shrink(updated, {0, 3, 0}, {4, 4, 16});
    }
    g.outputs.push_back(g.unary(Op::Exp, g.input("x", DType::F32, {4, 64})));
    outputs.push_back({});
  }
  std::vector<BuiltRegion> regions(const kernel::Target& target) {
    const CandidateGraph prepared(prepare_outputs(g));
    Partitioned parts = partition_for(prepared, {}, target);
    declare_overwritten_inputs(prepared.graph(), parts.regions, outputs);
    batch_small_kernels(prepared.graph(), parts.regions, outputs, target);
    return parts.regions;
  }
};

TEST(Batching, SmallScattersAndMapsShareALaunchOnAGpu) {
  const kernel::Target gpu = backend::cuda::known_target(90);
  const std::vector<BuiltRegion> regions = TwoUpdates().regions(gpu);
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(kernel::parts_of(regions[0].region).size(), 3u);
  const kernel::Chosen chosen = kernel::lower_greedily(regions[0].region, gpu);
  EXPECT_EQ(chosen.schedule.generator, "batch");
  const auto result = backend::reference::verify_kernel(
      regions[0].region, chosen.program,
      [](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
        backend::reference::interpret(program, block, {.workers = 3});
      });
  EXPECT_TRUE(result.ok) << result.message;
  // One that reads what another writes stays apart.
  for (const BuiltRegion& built : TwoUpdates(true).regions(gpu))
    EXPECT_LE(
        std::count_if(built.region.outputs.begin(), built.region.outputs.end(),
                      [](const kernel::Output& o) { return o.combine != kernel::Combine::Store; }),
        1);
}

// Sums and counts of clusters: the sums take over the memory of their zeros, the counts, which are
// an output, are copied to before the launch that makes both.
TEST(Batching, ScattersOfALaunchBeginBehindItsCopies) {
  Graph g;
  const NodeId nearest = g.reduce(Op::ReduceArgMax, g.input("scores", DType::F32, {40, 4}), {1});
  const auto zeros = [&](DType type, const Shape& shape) {
    const NodeId zero = g.constant(Scalar::of(type, 0.0));
    return g.unary(Op::StopGradient, g.expand(g.reshape(zero, Shape(shape.size(), 1)), shape));
  };
  const NodeId rows = g.input("rows", DType::F32, {40, 3});
  const NodeId ones = g.expand(g.reshape(g.constant(Scalar::of(DType::I64, 1.0)), {1}), {40});
  const NodeId sums = g.scatter(Op::ScatterAdd, zeros(DType::F32, {4, 3}), nearest, rows, 0);
  const NodeId counts = g.scatter(Op::ScatterAdd, zeros(DType::I64, {4}), nearest, ones, 0);
  const NodeId divisors = g.expand(g.reshape(g.cast(counts, DType::F32), {4, 1}), {4, 3});
  g.outputs = {g.binary(Op::Div, sums, divisors), nearest, counts};
  testing::NullDevice gpu(backend::cuda::known_target(90));
  KernelCache cache;
  const Compiled compiled = compile_graph(g, {}, gpu, cache); // which checks the plan
  int scatters = 0, copies = 0;
  for (const kernel::Step& step : compiled.plan.steps) {
    if (step.kind == kernel::StepKind::Copy)
      ++copies;
    else if (step.kind == kernel::StepKind::Launch)
      for (const kernel::Output& out :
           compiled.plan.kernels[std::size_t(step.kernel)].region.outputs)
        scatters += out.combine == kernel::Combine::Add;
  }
  EXPECT_EQ(scatters, 2);
  EXPECT_EQ(copies, 1);
}

TEST(Batching, ScattersStayAloneOnACpu) {
  EXPECT_GE(TwoUpdates().regions(testing::test_targets()[0]).size(), 3u);
}

/// Notes what is compiled.
class NotingDevice : public testing::NullDevice {
public:
  using NullDevice::NullDevice;
  std::shared_ptr<const backend::Artifact> compile(const kernel::KernelProgram& program) override {
    lengths.push_back(kernel::code_length(program));
    return NullDevice::compile(program);
  }
  int compile_threads() const override { return 1; }
  std::vector<std::int64_t> lengths;
};

TEST(GenerateCode, LongestKernelsComeFirst) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {4096, 512});
  NodeId value = x;
  for (int i = 0; i < 3; ++i) {
    const NodeId sums = g.reduce(Op::ReduceSum, value, {0});
    value = g.broadcast(sums, {4096, 512});
    for (int k = 0; k < 4 * i; ++k)
      value = mul(g, g.unary(Op::Sin, value), x);
  }
  g.outputs = {value};
  NotingDevice device;
  KernelCache cache;
  compile_graph(g, {}, device, cache);
  ASSERT_GE(device.lengths.size(), 2u);
  EXPECT_TRUE(std::ranges::is_sorted(device.lengths, std::greater()));
  EXPECT_GT(device.lengths.front(), device.lengths.back());
}

Graph sums_of(const std::vector<std::int64_t>& lengths) {
  Graph g;
  for (const std::int64_t n : lengths) {
    const NodeId x = g.input("x", DType::F32, {n});
    g.outputs.push_back(g.reduce(Op::ReduceSum, mul(g, x, x), {0}));
  }
  return g;
}

std::vector<BuiltRegion> batched_for(const Graph& g, const kernel::Target& target) {
  const CandidateGraph prepared(prepare_outputs(g));
  Partitioned parts = partition_for(prepared, {}, target);
  batch_small_kernels(prepared.graph(), parts.regions, {}, target);
  return parts.regions;
}

// A block makes each of them, whatever its length; longer ones are shared by blocks, each by as
// many as its length asks for.
TEST(Batching, SumsThatABlockMakesShareALaunchOnAGpu) {
  const kernel::Target gpu = backend::cuda::known_target(90);
  std::vector<std::int64_t> lengths, long_ones;
  for (std::int64_t n = 1; n <= 40; ++n) {
    lengths.push_back(n == 40 ? 40000 : 1 + 37 * n);
    long_ones.push_back(70000 + 16 * n);
  }
  const std::vector<BuiltRegion> regions = batched_for(sums_of(lengths), gpu);
  ASSERT_EQ(regions.size(), 1u);
  const kernel::Chosen chosen = kernel::lower_greedily(regions[0].region, gpu);
  EXPECT_EQ(chosen.program.groups.size(), 1u);
  EXPECT_GE(chosen.program.launch.workers.value(), 40);
  const auto result = backend::reference::verify_kernel(
      regions[0].region, chosen.program,
      [](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
        backend::reference::interpret(program, block, {.workers = 5});
      });
  EXPECT_TRUE(result.ok) << result.message;
  for (const BuiltRegion& built : batched_for(sums_of(long_ones), gpu))
    EXPECT_TRUE(kernel::lower_greedily(built.region, gpu).program.groups.empty());
}

// Arrays of one size are rows of one kernel, one after the other, only as far as a block goes
// through them soon.
TEST(Batching, LimitingTheNormOfManyArraysIsThreeLaunchesOnAGpu) {
  Graph g;
  std::vector<NodeId> arrays;
  NodeId all = g.constant(DType::F32, 0.0);
  for (int i = 0; i < 60; ++i) {
    arrays.push_back(g.input("x", DType::F32, {i % 3 == 0 ? 64 : i % 3 == 1 ? 4000 : 9000}));
    all = add(g, all, g.reduce(Op::ReduceSum, mul(g, arrays.back(), arrays.back()), {0}));
  }
  const NodeId factor = g.unary(Op::Recip, g.unary(Op::Sqrt, all));
  for (const NodeId x : arrays)
    g.outputs.push_back(mul(g, x, g.broadcast(factor, g[x].shape)));
  const std::vector<BuiltRegion> regions = batched_for(g, backend::cuda::known_target(90));
  EXPECT_LE(regions.size(), 3u);
  for (const BuiltRegion& built : regions)
    if (!kernel::has_parts(built.region)) {
      std::int64_t bytes = 0;
      for (const kernel::Operand& o : built.region.operands)
        bytes += element_count(o.shape).value() * 4;
      EXPECT_LE(bytes, 4 * 66000) << "by one block";
    }
}

// A scalar of one part may lie where another one was only if no other part reads that: blocks of a
// launch run in any order.
TEST(Batching, APartOverwritesNothingThatAnotherOneReads) {
  Graph g;
  const NodeId a = g.input("a", DType::F32, {}), b = g.input("b", DType::F32, {});
  for (const std::int64_t n : {300, 410}) {
    const NodeId x = g.input("x", DType::F32, {Expr(n)}),
                 sum = g.reduce(Op::ReduceSum, mul(g, x, x), {0});
    g.outputs.push_back(add(g, mul(g, sum, a), b));
  }
  const kernel::Target gpu = backend::cuda::known_target(90);
  const std::vector<BuiltRegion> regions = batched_for(g, gpu);
  ASSERT_EQ(regions.size(), 1u);
  const kernel::Region& region = regions[0].region;
  ASSERT_EQ(kernel::parts_of(region).size(), 2u);
  for (std::size_t o = 0; o < region.outputs.size(); ++o)
    for (std::size_t i = 0; i < region.operands.size(); ++i)
      EXPECT_FALSE(kernel::may_alias(region, int(o), int(i))) << o << " over " << i;
}

// Steps whose length follows from the norms of weights and updates (You et al. 2020, LAMB): a block
// makes both norms of an array and then its new values, one launch makes all.
TEST(Batching, StepsByNormsOfManyArraysAreFewLaunchesOnAGpu) {
  Graph g;
  for (std::int64_t i = 0; i < 36; ++i) {
    const Shape shape{i % 3 == 0 ? 16000 + 331 * i : i % 3 == 1 ? 1 + 17 * i : 12000 + 50 * i};
    const NodeId x = g.input("x", DType::F32, shape), m = g.input("m", DType::F32, shape);
    const NodeId moved = add(g, mul(g, m, number(g, 0.9, shape)), gradient(g, shape));
    const auto norm = [&](NodeId a) {
      return g.unary(Op::Sqrt, g.reduce(Op::ReduceSum, mul(g, a, a), {0}));
    };
    const NodeId trust = g.binary(Op::Div, norm(x), norm(moved));
    g.outputs.push_back(moved);
    g.outputs.push_back(add(g, x, mul(g, moved, g.broadcast(trust, shape))));
  }
  const std::vector<BuiltRegion> regions = batched_for(g, backend::cuda::known_target(90));
  EXPECT_LE(regions.size(), 4u);
  for (const BuiltRegion& built : regions) {
    const kernel::Chosen chosen =
        kernel::lower_greedily(built.region, backend::cuda::known_target(90));
    const auto result = backend::reference::verify_kernel(
        built.region, chosen.program,
        [](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
          backend::reference::interpret(program, block, {.workers = 5});
        });
    EXPECT_TRUE(result.ok) << built.region.name << ": " << result.message;
  }
}

} // namespace
} // namespace egret::compiler
