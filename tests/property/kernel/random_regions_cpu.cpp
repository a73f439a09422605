// Regions of random graphs on the CPU device, at each level of its instruction set.
#include "support/cpu_levels.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

class RandomRegionsOnCpu : public ::testing::TestWithParam<const char*> {};

TEST_P(RandomRegionsOnCpu, AgreeWithTheReference) {
  backend::Device& device = testing::cpu_at(GetParam());
  testing::RandomGraphOptions options;
  options.max_elements = 2000;
  options.ops = 10;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    ir::Graph graph = testing::random_graph(seed, options);
    auto inputs = testing::random_inputs(graph, seed, {.special = false});
    for (const auto& c : testing::region_cases(graph, inputs)) {
      std::string wrong = testing::check_generators(c, device.target(), {.device = &device}, 1);
      ASSERT_TRUE(wrong.empty()) << "seed " << seed << ": " << wrong;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, RandomRegionsOnCpu, ::testing::ValuesIn(testing::cpu_levels()));

} // namespace
} // namespace egret
