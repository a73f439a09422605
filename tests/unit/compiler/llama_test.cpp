// A large graph of equal layers through the whole compiler: what a layer costs does not depend on
// how many there are. Times are the processor's, which others may use, too.
#include "backend/cpu/cpu_device.h"
#include "compiler/compile.h"
#include "compiler/partition.h"
#include "compiler/prepare_outputs.h"
#include "compiler/regions.h"
#include "compiler/search/tuner.h"
#include "egret/passes.h"
#include "support/llama_graph.h"
#include "support/scale.h"

#include <gtest/gtest.h>

#include <ctime>

namespace egret::compiler {
namespace {

using testing::llama_graph;

class ProcessorClock {
public:
  double seconds() const { return static_cast<double>(std::clock() - begin_) / CLOCKS_PER_SEC; }

private:
  std::clock_t begin_ = std::clock();
};

TEST(LlamaCompile, ThirtyTwoLayersArePartitioned) {
  const auto device = backend::cpu::make_cpu_device(2);
  const ir::Graph graph = prepare_outputs(passes::normalize()(llama_graph({.layers = 32})));
  const ProcessorClock clock;
  const GraphFacts facts(graph);
  const Partition partition = partition_greedily(facts, true);
  const auto regions = build_regions(facts, partition, device->target());
  const double seconds = clock.seconds();
  RecordProperty("milliseconds", static_cast<int>(seconds * 1e3));
  EXPECT_GT(regions.size(), 32u);
}

// Cold: every kernel is ranked by the model and compiled.
TEST(LlamaCompile, EqualLayersShareTheirKernels) {
  const auto device = backend::cpu::make_cpu_device(2);
  const auto kernels_of = [&](std::int64_t layers) {
    const ir::Graph graph = llama_graph({.layers = layers});
    Tuner tuner(*device, {.worker = {"cpu", EGRET_TEST_TOOL, 60 * test::scale()}});
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
    return compiled.plan.kernels.size();
  };
  const std::size_t kernels_of_eight = kernels_of(8), kernels_of_sixteen = kernels_of(16),
                    kernels = kernels_of(32);
  EXPECT_EQ(kernels, kernels_of_sixteen); // equal layers share their kernels
  // Small kernels of several layers run in one launch, of which eight layers fill none.
  EXPECT_LE(kernels, kernels_of_eight + 2);
}

} // namespace
} // namespace egret::compiler
