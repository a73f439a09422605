// Whatever the graph, the compiled plan computes what the reference says, on the CPU and through
// the interpreter, fused and op by op.
#include "backend/cpu/cpu_device.h"
#include "support/minimize.h"
#include "support/plan_check.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

void run(std::uint64_t first, std::uint64_t count, const testing::RandomGraphOptions& options,
         const compiler::Options& how, bool interpret) {
  auto device = backend::cpu::make_cpu_device(2);
  compiler::KernelCache cache;
  const auto problem_of = [&](const ir::Graph& graph, std::uint64_t seed) {
    return testing::check_plan(graph, seed, {.compile = how, .interpret = interpret}, *device,
                               cache)
        .problem;
  };
  int wrong = 0;
  for (std::uint64_t seed = first; seed < first + count && wrong < 5; ++seed) {
    const ir::Graph graph = testing::random_graph(seed, options);
    if (problem_of(graph, seed).empty())
      continue;
    ++wrong;
    const ir::Graph small = testing::minimized(
        graph, [&](const ir::Graph& part) { return !problem_of(part, seed).empty(); });
    ADD_FAILURE() << "seed " << seed << ": " << problem_of(small, seed) << "\n" << ir::print(small);
  }
}

TEST(RandomGraphs, FusedPlansOnTheCpu) {
  run(1, 150, {.ops = 16}, {}, false);
}
TEST(RandomGraphs, LargerGraphs) {
  run(20001, 20, {.ops = 60}, {}, false);
}
TEST(RandomGraphs, FloatsOnly) {
  run(30001, 100, {.ops = 20, .dtypes = {DType::F32}}, {}, false);
}
TEST(RandomGraphs, OpByOp) {
  run(40001, 60, {.ops = 10}, {.fuse = false}, false);
}
TEST(RandomGraphs, SymbolicSizes) {
  run(50001, 60, {.ops = 12, .symbolic = true}, {}, false);
}
TEST(RandomGraphs, AfterTheRules) {
  run(70001, 100, {.ops = 16}, {.effort = Effort::Quick}, false);
}
TEST(RandomGraphs, AfterTheRulesWithSymbolicSizes) {
  run(80001, 40, {.ops = 12, .symbolic = true}, {.effort = Effort::Quick}, false);
}
TEST(RandomGraphs, ThroughTheInterpreter) {
  run(60001, 60, {.ops = 12}, {}, true);
}

} // namespace
} // namespace egret
