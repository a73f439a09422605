// However a graph is cut into kernels, it computes what the reference says.
#include "backend/cpu/cpu_device.h"
#include "backend/reference/reference.h"
#include "compiler/search/divisions.h"
#include "compiler/search/moves.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace egret {
namespace {

namespace reference = backend::reference;

TEST(Divisions, AnyMovesTogetherAreRight) {
  const auto device = backend::cpu::make_cpu_device(2);
  compiler::KernelCache cache;
  const compiler::Options options;
  std::size_t different = 0;
  for (std::uint64_t seed = 90001; seed < 90151; ++seed) {
    const ir::Graph graph = testing::random_graph(seed, {.ops = 24});
    const compiler::Form form(graph);
    const auto greedy = compiler::partition_for(form.facts(), true, device->target());
    testing::Rng random(seed);
    std::vector<std::uint64_t> drawn;
    std::string what;
    // Moves of few elements, too, which a search leaves alone.
    for (const compiler::Move& move : compiler::moves_of(form.facts(), greedy.partition, 0))
      if (random.chance(0.3)) {
        drawn.push_back(move.id);
        what += move.what + "; ";
      }
    const compiler::PartitionChoices choices =
        compiler::together(compiler::moves_of(form.facts(), greedy.partition, 0), drawn);
    compiler::Partitioned parts = compiler::divide(form, options, device->target(), choices);
    different += parts.regions.size() != greedy.regions.size();
    compiler::Proposer proposer(options, device->target());
    const compiler::Compiled compiled = compiler::assemble(
        form, proposer.propose(form, std::move(parts), 0), options, *device, cache, {});
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
}

} // namespace
} // namespace egret
