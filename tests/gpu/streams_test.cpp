// Attention and its gradients on the GPU, from the formula: by kernels that store no scores.
#include "backend/reference/reference.h"
#include "compiler/compile.h"
#include "gpu/gpu.h"
#include "support/attention_graphs.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret {
namespace {

TEST(GpuStreams, AgreeWithTheReference) {
  compiler::KernelCache cache;
  for (testing::Attention form : testing::attentions())
    for (const std::int64_t times : {1, 3}) { // several tiles along the keys and the queries
      form.queries *= times;
      form.keys *= times;
      const ir::Graph g = testing::attention_graph(form);
      auto inputs = testing::random_inputs(g, 7, {.special = false, .range = 1});
      const auto expected = backend::reference::expect(g, inputs);
      const auto compiled = compiler::compile_graph(g, {}, testing::gpu(), cache);
      EXPECT_TRUE(std::any_of(
          compiled.plan.kernels.begin(), compiled.plan.kernels.end(),
          [](const kernel::KernelEntry& k) { return k.schedule.generator == "gpu_stream"; }))
          << form.name;
      const auto actual = testing::run_plan(compiled, g, inputs, &testing::gpu());
      for (std::size_t o = 0; o < actual.size(); ++o) {
        const auto result = backend::reference::compare(actual[o], expected[o],
                                                        fmt::format("{}, output {}", form.name, o));
        EXPECT_TRUE(result.ok) << result.message;
      }
    }
}

} // namespace
} // namespace egret
