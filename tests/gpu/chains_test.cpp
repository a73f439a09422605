// Steps of recurrent cells in one launch.
#include "backend/reference/reference.h"
#include "compiler/compile.h"
#include "gpu/gpu.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"
#include "support/recurrent_graphs.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using testing::RecurrentKind;
using testing::RecurrentProgram;

TEST(GpuChains, StepsOfCellsAreOneLaunch) {
  for (const RecurrentProgram& p :
       {RecurrentProgram{.kind = RecurrentKind::Lstm, .steps = 20, .batch = 64, .width = 6},
        RecurrentProgram{.kind = RecurrentKind::Lstm, .steps = 30, .batch = 7, .width = 113},
        RecurrentProgram{.kind = RecurrentKind::Gru, .steps = 40, .batch = 33, .width = 100},
        RecurrentProgram{.kind = RecurrentKind::Tanh,
        .steps = 50,
        .batch = 150,
        .width = 64,
        .every_step = false},
        RecurrentProgram{.kind = RecurrentKind::Lstm,
        .steps = 12,
        .batch = 16,
        .width = 128,
        .weights_transposed = true},
        RecurrentProgram{.kind = RecurrentKind::ResetInside, .steps = 16, .batch = 20, .width = 48},
        RecurrentProgram{
            .kind = RecurrentKind::Lstm, .steps = 40, .batch = 16, .width = 128, .inputs = 64},
        RecurrentProgram{.kind = RecurrentKind::Lstm, .steps = 30, .batch = 33, .width = 256},
        RecurrentProgram{.kind = RecurrentKind::Gru, .steps = 25, .batch = 1, .width = 230},
        RecurrentProgram{.kind = RecurrentKind::Gru,
        .steps = 16,
        .batch = 3,
        .width = 168,
        .dtype = DType::BF16},
        RecurrentProgram{.kind = RecurrentKind::Mixing, .steps = 30, .batch = 24, .width = 64}}) {
    const ir::Graph graph = graph_of(p);
    compiler::Options options;
    options.chains = true;
    compiler::KernelCache cache;
    const auto compiled = compiler::compile_graph(graph, options, testing::gpu(), cache);
    EXPECT_EQ(compiled.chains.size(), 1u) << p.name() << "\n" << print(compiled.plan);
    auto inputs = testing::random_inputs(graph, 3);
    const auto expected = backend::reference::expect(graph, inputs);
    const auto actual = testing::run_plan(compiled, graph, inputs, &testing::gpu());
    for (std::size_t o = 0; o < actual.size(); ++o) {
      const auto result = backend::reference::compare(actual[o], expected[o], "output");
      EXPECT_TRUE(result.ok) << p.name() << ", " << o << ": " << result.message;
    }
  }
}

} // namespace
} // namespace egret
