// However a graph is cut into kernels, it computes what the reference says.
#include "backend/cpu/cpu_device.h"
#include "backend/reference/reference.h"
#include "compiler/search/layout_moves.h"
#include "support/fusion_plans.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace egret {
namespace {

namespace reference = backend::reference;

TEST(FusionPlans, AnyMovesTogetherAreRight) {
  const auto device = backend::cpu::make_cpu_device(2);
  compiler::KernelCache cache;
  const compiler::Options options;
  std::size_t different = 0, layouts = 0;
  for (std::uint64_t seed = 90001; seed < 90151; ++seed) {
    const ir::Graph graph = testing::random_graph(seed, {.ops = 24});
    const auto normal = compiler::normal_form(graph);
    const compiler::CandidateGraph& plain = *normal;
    const auto greedy = compiler::partition_for(plain, options, device->target());
    testing::Rng random(seed);
    std::vector<std::uint64_t> drawn;
    std::string what;
    // Moves of few elements, too, which a search leaves alone.
    std::vector<compiler::Move> moves = compiler::moves_of(plain.facts(), greedy.partition, 0);
    const std::vector<bool> steady(graph.inputs().size()); // no parameters: their copies are inputs
    for (compiler::Move& move :
         compiler::layout_moves_of(plain.facts(), greedy, device->target(), {steady, {}}, 0)) {
      ++layouts;
      moves.push_back(std::move(move));
    }
    for (const compiler::Move& move : moves)
      if (random.chance(0.3)) {
        drawn.push_back(move.id);
        what += move.what + "; ";
      }
    compiler::PartitionChoices choices = compiler::together(moves, drawn);
    different +=
        compiler::with_launches(plain, options, device->target(), choices).regions.size() !=
        greedy.regions.size();
    const compiler::Compiled compiled =
        testing::compile_fusion_plan(plain, choices, options, *device, cache);
    std::vector<reference::HostArray> inputs = testing::random_inputs(graph, seed);
    const auto expected = reference::expect(graph, inputs);
    const auto actual = testing::run_plan(compiled, graph, inputs, device.get());
    for (std::size_t o = 0; o < actual.size(); ++o) {
      const auto result = reference::compare(actual[o], expected[o], fmt::format("output {}", o));
      EXPECT_TRUE(result.ok) << "seed " << seed << ": " << result.message << "\n"
                             << what << "\n"
                             << ir::print(graph);
    }
  }
  EXPECT_GT(different, 60u); // or they moved nothing
  EXPECT_GT(layouts, 20u);
}

} // namespace
} // namespace egret
