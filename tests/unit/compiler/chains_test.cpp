// Chains of launches: programs that repeat a few kernels with other memory, as one launch.
#include "compiler/compile.h"

#include "backend/cuda/target.h"
#include "backend/reference/reference.h"
#include "kernel/chain.h"
#include "kernel/clusters.h"
#include "support/null_device.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"
#include "support/recurrent_graphs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret::compiler {
namespace {

using testing::RecurrentKind;
using testing::RecurrentProgram;

Compiled chained(const ir::Graph& graph, bool chains = true) {
  testing::NullDevice device(backend::cuda::known_target(90));
  KernelCache cache;
  Options options;
  options.chains = chains;
  options.verify_passes = true;
  return compile_graph(graph, options, device, cache);
}

void expect_right(const ir::Graph& graph, const Compiled& compiled, const std::string& what) {
  auto inputs = testing::random_inputs(graph, 5);
  const auto expected = backend::reference::expect(graph, inputs);
  const auto actual = testing::run_plan(compiled, graph, inputs);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t o = 0; o < actual.size(); ++o) {
    const auto result =
        backend::reference::compare(actual[o], expected[o], "output " + std::to_string(o));
    EXPECT_TRUE(result.ok) << what << ": " << result.message;
  }
}

/// Launches that chains do, and those that stay.
struct Launches {
  int chained = 0, alone = 0;
};
Launches launches_of(const Compiled& compiled) {
  Launches found;
  for (const PlannedWork& work : work_of(compiled))
    (work.count > 1 ? found.chained : found.alone) += work.count;
  return found;
}

TEST(Chains, StepsOfCellsAreOneLaunch) {
  for (const RecurrentProgram& p : {
           RecurrentProgram{.kind = RecurrentKind::Tanh, .batch = 3, .width = 5},
           RecurrentProgram{.kind = RecurrentKind::Lstm},
           RecurrentProgram{.kind = RecurrentKind::Lstm, .every_step = false},
           RecurrentProgram{
               .kind = RecurrentKind::Lstm, .batch = 9, .width = 33, .weights_transposed = true},
           RecurrentProgram{.kind = RecurrentKind::Peephole, .batch = 5, .width = 12},
           RecurrentProgram{.kind = RecurrentKind::Gru, .batch = 2, .width = 20},
           RecurrentProgram{.kind = RecurrentKind::Gru, .width = 16, .dtype = DType::BF16},
           RecurrentProgram{.kind = RecurrentKind::Tanh, .batch = 1, .width = 40},
           // Two steps that one streaming contraction could be.
           RecurrentProgram{
               .kind = RecurrentKind::Tanh, .batch = 150, .width = 64, .every_step = false},
       }) {
    const ir::Graph graph = graph_of(p);
    const Compiled compiled = chained(graph);
    ASSERT_EQ(compiled.chains.size(), 1u) << p.name() << "\n" << print(compiled.plan);
    EXPECT_GE(launches_of(compiled).chained, p.steps - 1) << print(compiled.plan);
    EXPECT_EQ(compiled.report.chains.size(), 1u);
    expect_right(graph, compiled, p.name());
  }
}

// Their factors do not fit a block.
TEST(Chains, WideCellsShareColumnsInAClusterOfBlocks) {
  for (const RecurrentProgram& p : {
           RecurrentProgram{.kind = RecurrentKind::Lstm, .steps = 5, .batch = 5, .width = 200},
           RecurrentProgram{.kind = RecurrentKind::Gru,
           .steps = 5,
           .batch = 2,
           .width = 211,
           .dtype = DType::BF16},
           RecurrentProgram{
               .kind = RecurrentKind::ResetInside, .steps = 4, .batch = 3, .width = 256},
           RecurrentProgram{
               .kind = RecurrentKind::Lstm, .steps = 5, .batch = 9, .width = 180, .inputs = 64},
           RecurrentProgram{.kind = RecurrentKind::Lstm, .steps = 4, .batch = 1, .width = 230},
       }) {
    const ir::Graph graph = graph_of(p);
    const Compiled compiled = chained(graph);
    ASSERT_EQ(compiled.chains.size(), 1u) << p.name() << "\n" << print(compiled.plan);
    EXPECT_GT(kernel::cluster_blocks(compiled.chains[0].program), 1) << p.name();
    EXPECT_LE(launches_of(compiled).alone, 3) << p.name();
    expect_right(graph, compiled, p.name());
  }
}

// A launch of their kernel takes longer than a launch of an empty one.
TEST(Chains, StepsOfManyRowsPayToo) {
  const RecurrentProgram p{.kind = RecurrentKind::Lstm, .steps = 16, .batch = 64, .width = 256};
  const Compiled compiled = chained(graph_of(p));
  ASSERT_EQ(compiled.chains.size(), 1u) << print(compiled.plan);
  EXPECT_GE(launches_of(compiled).chained, p.steps - 1);
}

TEST(Chains, TwoKernelsAStep) {
  const RecurrentProgram p{.kind = RecurrentKind::ResetInside, .batch = 4, .width = 12};
  const ir::Graph graph = graph_of(p);
  const Compiled compiled = chained(graph);
  ASSERT_EQ(compiled.chains.size(), 1u) << print(compiled.plan);
  EXPECT_EQ(compiled.chains[0].program.groups.size(), 2u);
  EXPECT_GE(compiled.chains[0].count, 2 * (p.steps - 1));
  expect_right(graph, compiled, p.name());
}

// The product of one row is a kernel of its own, and what combines its slices another one.
TEST(Chains, ProductsOfOneRowAndMapsInOneBlock) {
  const RecurrentProgram p{.kind = RecurrentKind::Gru, .steps = 7, .batch = 1, .width = 21};
  const ir::Graph graph = graph_of(p);
  const Compiled compiled = chained(graph);
  ASSERT_EQ(compiled.chains.size(), 1u) << print(compiled.plan);
  EXPECT_GE(compiled.chains[0].count, 2 * (p.steps - 1));
  EXPECT_EQ(compiled.chains[0].program.launch.workers, Expr(1));
  expect_right(graph, compiled, p.name());
}

// The gradients of a cell's gates are put together for the next product by a map, in the rows of
// the block that made them; memory that the steps would share is not shared for that.
TEST(Chains, MapsGoByTheRowsOfTheirBlock) {
  for (const RecurrentKind kind : {RecurrentKind::Lstm, RecurrentKind::Gru}) {
    const RecurrentProgram p{
        .kind = kind, .steps = 7, .batch = 16, .width = 24, .inputs = 9, .gradient = true};
    const ir::Graph graph = graph_of(p);
    const Compiled compiled = chained(graph);
    EXPECT_TRUE(std::any_of(compiled.chains.begin(), compiled.chains.end(),
                            [](const Chain& chain) {
                              return chain.program.groups.size() == 2 &&
                                     !(chain.program.launch.workers == Expr(1));
                            }))
        << p.name() << "\n"
        << print(compiled.plan);
    expect_right(graph, compiled, p.name());
  }
}

TEST(Chains, GradientsThroughTheLoop) {
  for (const RecurrentKind kind :
       {RecurrentKind::Tanh, RecurrentKind::Lstm, RecurrentKind::Gru, RecurrentKind::ResetInside}) {
    const RecurrentProgram p{.kind = kind, .steps = 7, .batch = 16, .width = 64, .gradient = true};
    const ir::Graph graph = graph_of(p);
    const Compiled compiled = chained(graph);
    EXPECT_GE(compiled.chains.size(), 2u) << p.name() << "\n" << print(compiled.plan);
    expect_right(graph, compiled, p.name());
  }
}

TEST(Chains, StepsThatNeedRowsOfOthersAreOneBlocksOrClusters) {
  const RecurrentProgram p{.kind = RecurrentKind::Mixing, .batch = 24, .width = 64};
  const ir::Graph graph = graph_of(p);
  const Compiled compiled = chained(graph);
  ASSERT_EQ(compiled.chains.size(), 1u) << print(compiled.plan);
  const kernel::KernelProgram& program = compiled.chains[0].program;
  EXPECT_EQ(program.launch.workers, Expr(std::max(1, kernel::cluster_blocks(program))));
  expect_right(graph, compiled, p.name());
}

TEST(Chains, StepsThatNeedRowsOfOthersStayApart) {
  const RecurrentProgram p{.kind = RecurrentKind::Mixing, .batch = 300, .width = 8};
  const ir::Graph graph = graph_of(p);
  const Compiled compiled = chained(graph);
  EXPECT_TRUE(compiled.chains.empty()) << print(compiled.plan);
}

TEST(Chains, AreMadeOnlyWhereAsked) {
  const ir::Graph graph = graph_of(RecurrentProgram{});
  EXPECT_TRUE(chained(graph, false).chains.empty());
  testing::NullDevice cpu;
  KernelCache cache;
  Options options;
  options.chains = true;
  EXPECT_TRUE(compile_graph(graph, options, cpu, cache).chains.empty());
}

TEST(Chains, FewLaunchesStayApart) {
  const ir::Graph graph = graph_of(RecurrentProgram{.steps = 3});
  EXPECT_TRUE(chained(graph).chains.empty());
}

TEST(Chains, FactorsAreLoadedOnceBeforeTheSteps) {
  const Compiled compiled = chained(graph_of(RecurrentProgram{.kind = RecurrentKind::Lstm}));
  ASSERT_EQ(compiled.chains.size(), 1u);
  const kernel::KernelProgram& program = compiled.chains[0].program;
  const auto loads = [](const kernel::Block& block) {
    int count = 0;
    kernel::each_statement(block, [&](const kernel::Stmt& s) {
      count += kernel::made_by<kernel::inst::Load>(s) != nullptr;
    });
    return count;
  };
  const auto* rows = kernel::get_if<kernel::For>(program.body.back());
  ASSERT_NE(rows, nullptr);
  kernel::Block before = rows->body;
  ASSERT_NE(kernel::get_if<kernel::For>(before.back()), nullptr);
  before.pop_back();
  EXPECT_GT(loads(before), 0);
  const std::string text = print(program);
  EXPECT_NE(text.find("group 0"), std::string::npos);
}

} // namespace
} // namespace egret::compiler
