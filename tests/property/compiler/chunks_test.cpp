// Random programs of reductions with their products in chunks: the values of the program as it was.
#include "backend/cpu/cpu_device.h"
#include "backend/reference/reference.h"
#include "compiler/chunks.h"
#include "compiler/compile.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"
#include "support/reduction_graphs.h"

#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

TEST(ChunksOfRandomGraphs, AgreeWithTheReferenceOfTheWhole) {
  const auto device = backend::cpu::make_cpu_device(2);
  const auto small = testing::with_small_caches(*device);
  int made = 0, wrong = 0;
  for (std::uint64_t seed = 1; seed <= 400 && made < 40 && wrong < 3; ++seed) {
    const ir::Graph graph = testing::random_reductions(seed).graph;
    auto inputs = testing::random_inputs(graph, seed, {.special = false, .range = 1});
    std::optional<std::vector<backend::reference::Expected>> expected;
    const std::vector<ProductSplit> cuts = possible_splits(graph, 0);
    for (std::size_t i = seed % 5; i < cuts.size(); i += 5) { // all kinds in turn
      const ProductSplit& cut = cuts[i];
      const std::optional<ir::Graph> after = split_into_chunks(graph, cut);
      if (!after)
        continue;
      ++made;
      ir::verify(*after);
      if (!expected)
        expected = backend::reference::expect(graph, inputs);
      Options options;
      options.chunks = bounds_of(graph, cut);
      KernelCache cache;
      backend::Device& on = made % 2 == 0 ? *device : *small;
      const Compiled compiled = compile_graph(*after, options, on, cache);
      const auto actual = testing::run_plan(compiled, *after, inputs, &on);
      for (std::size_t o = 0; o < actual.size(); ++o) {
        const auto result = backend::reference::compare(actual[o], (*expected)[o], "output");
        if (result.ok)
          continue;
        ++wrong;
        ADD_FAILURE() << "seed " << seed << ", %" << cut.product << " along " << cut.dim << " in "
                      << cut.chunks << ": output " << o << ", " << result.message << "\n"
                      << ir::print(graph);
      }
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(made, 40);
}

} // namespace
} // namespace egret::compiler
