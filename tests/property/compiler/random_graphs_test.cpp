// Whatever the graph, the compiled plan computes what the reference says, on the CPU and through
// the interpreter, fused and op by op.
#include "backend/cpu/cpu_device.h"
#include "backend/reference/reference.h"
#include "compiler/compile.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace egret {
namespace {

namespace reference = backend::reference;

/// Empty when right; else what is wrong.
std::string check(const ir::Graph& graph, std::uint64_t seed, const compiler::Options& options,
                  backend::Device& device, compiler::KernelCache& cache, bool interpret) {
  std::vector<reference::HostArray> inputs = testing::random_inputs(graph, seed);
  const std::vector<reference::Expected> expected = reference::expect(graph, inputs);
  try {
    const compiler::Compiled compiled = compiler::compile_graph(graph, options, device, cache);
    const auto actual = testing::run_plan(compiled, graph, inputs, interpret ? nullptr : &device);
    for (std::size_t o = 0; o < actual.size(); ++o) {
      const auto result = reference::compare(actual[o], expected[o], fmt::format("output {}", o));
      if (!result.ok)
        return result.message;
    }
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

void run(std::uint64_t first, std::uint64_t count, const testing::RandomGraphOptions& options,
         const compiler::Options& how, bool interpret) {
  auto device = backend::cpu::make_cpu_device(2);
  compiler::KernelCache cache;
  int wrong = 0;
  for (std::uint64_t seed = first; seed < first + count && wrong < 5; ++seed) {
    const ir::Graph graph = testing::random_graph(seed, options);
    const std::string problem = check(graph, seed, how, *device, cache, interpret);
    if (problem.empty())
      continue;
    ++wrong;
    const ir::Graph smallest = testing::first_failing(graph, [&](const ir::Graph& part) {
      return !check(part, seed, how, *device, cache, interpret).empty();
    });
    ADD_FAILURE() << "seed " << seed << ": " << problem << "\nfirst failing part: "
                  << check(smallest, seed, how, *device, cache, interpret) << "\n"
                  << ir::print(smallest);
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
