// A large graph of equal layers through the whole compiler: what a layer costs does not depend on
// how many there are. Times are the processor's, which others may use, too.
#include "backend/cpu/cpu_device.h"
#include "compiler/partition.h"
#include "compiler/prepare.h"
#include "compiler/regions.h"
#include "compiler/search/tuner.h"
#include "egret/passes.h"
#include "support/llama_graph.h"

#include <gtest/gtest.h>

#include <ctime>

namespace egret::compiler {
namespace {

using testing::llama_graph;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
constexpr bool kTimed = false;
#else
constexpr bool kTimed = true;
#endif

class ProcessorClock {
public:
  double seconds() const { return static_cast<double>(std::clock() - begin_) / CLOCKS_PER_SEC; }

private:
  std::clock_t begin_ = std::clock();
};

TEST(LlamaCompile, ThirtyTwoLayersArePartitionedInTwoSeconds) {
  const auto device = backend::cpu::make_cpu_device(2);
  const ir::Graph graph = prepare(passes::normalize()(llama_graph({.layers = 32})));
  const ProcessorClock clock;
  const GraphFacts facts(graph);
  const Partition partition = partition_greedily(facts, true);
  const auto regions = build_regions(facts, partition, device->target());
  const double seconds = clock.seconds();
  RecordProperty("milliseconds", static_cast<int>(seconds * 1e3));
  EXPECT_GT(regions.size(), 32u);
  if (kTimed) {
    EXPECT_LT(seconds, 2.0);
  }
}

// Cold: every kernel is ranked by the model and compiled.
TEST(LlamaCompile, ThirtyTwoLayersCompileQuicklyAndEachTakesTheSame) {
  const auto device = backend::cpu::make_cpu_device(2);
  const auto seconds_of = [&](std::int64_t layers) {
    const ir::Graph graph = llama_graph({.layers = layers});
    Tuner tuner(*device, {.worker = {"cpu", EGRET_TEST_TOOL, 60}});
    KernelCache cache;
    Options options;
    options.effort = Effort::Quick;
    options.rules.seconds = 100;
    options.tuner = &tuner;
    const ProcessorClock clock;
    const Compiled compiled = compile_graph(graph, options, *device, cache);
    const double seconds = clock.seconds();
    EXPECT_TRUE(compiled.report.saturation->saturated);
    RecordProperty("milliseconds_" + std::to_string(layers), static_cast<int>(seconds * 1e3));
    return std::pair(seconds, compiled.plan.kernels.size());
  };
  const auto [eight, kernels_of_eight] = seconds_of(8);
  const auto [sixteen, kernels_of_sixteen] = seconds_of(16);
  const auto [all, kernels] = seconds_of(32);
  EXPECT_EQ(kernels, kernels_of_sixteen); // equal layers share their kernels
  // Small kernels of several layers run in one launch, of which eight layers fill none.
  EXPECT_LE(kernels, kernels_of_eight + 2);
  if (kTimed) {
    EXPECT_LT(all, 10.0);
    EXPECT_LT((all - sixteen) / 16, 2 * (sixteen - eight) / 8 + 0.01);
  }
}

} // namespace
} // namespace egret::compiler
