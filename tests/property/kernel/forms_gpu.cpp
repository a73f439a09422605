// Programs of a GPU's generators through the interpreter, which runs threads in turns and watches
// for races: every form at small sizes, and regions of random graphs.
#include "support/random_graph.h"
#include "support/region_forms.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

class GpuForms : public ::testing::TestWithParam<testing::FormCase> {};

TEST_P(GpuForms, SchedulesAgreeWithTheReference) {
  std::uint64_t seed = 0;
  for (auto [m, n] : GetParam().sizes) {
    ir::Graph g;
    GetParam().make(g, m, n);
    // All schedules of one size, the usual ones of the others.
    const bool all = m * n < 2000 && ++seed % 5 == 0;
    for (const auto& c : testing::region_cases(g, testing::inputs_of(g, seed, false))) {
      std::string wrong = testing::check_generators(c, testing::test_gpu(),
                                                    {.workers = int(1 + seed % 3)}, all ? 1000 : 1);
      ASSERT_TRUE(wrong.empty()) << m << "," << n << ": " << wrong;
    }
  }
}

TEST_P(GpuForms, SpecialNumbersAgreeWithTheReference) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    ir::Graph g;
    GetParam().make(g, 3, 37);
    for (const auto& c : testing::region_cases(g, testing::inputs_of(g, seed, true))) {
      std::string wrong = testing::check_generators(c, testing::test_gpu(), {}, 1);
      ASSERT_TRUE(wrong.empty()) << "seed " << seed << ": " << wrong;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuForms, ::testing::ValuesIn(testing::region_forms()),
                         [](const auto& info) { return std::string(info.param.name); });

/// Lets outputs take the memory of operands wherever that is allowed.
void alias(kernel::Region& region) {
  std::vector<bool> taken(region.operands.size(), false);
  for (std::size_t o = 0; o < region.outputs.size(); ++o)
    for (std::size_t i = 0; i < region.operands.size(); ++i)
      if (region.outputs[o].alias < 0 && !taken[i] && kernel::may_alias(region, int(o), int(i)) &&
          region.outputs[o].shape == region.operands[i].shape) {
        region.outputs[o].alias = int(i);
        taken[i] = true;
      }
}

void check_random(std::uint64_t first, std::uint64_t count, bool symbolic) {
  testing::RandomGraphOptions options;
  options.max_elements = 300;
  options.symbolic = symbolic;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    std::vector<testing::RegionCase> cases;
    try {
      ir::Graph graph = testing::random_graph(seed, options);
      cases = testing::region_cases(
          graph, testing::random_inputs(graph, seed, {.special = seed % 4 == 0}));
    } catch (const Error& e) {
      ASSERT_TRUE(symbolic) << "seed " << seed << ": " << e.what();
      continue;
    }
    for (auto& c : cases) {
      if (seed % 2)
        alias(c.region);
      std::string wrong = testing::check_generators(
          c, testing::test_gpu(), {.workers = 1 + int(seed % 3), .in_place = true}, 1);
      ASSERT_TRUE(wrong.empty()) << "seed " << seed << ": " << wrong;
    }
  }
}

TEST(GpuRandomRegions, AgreeWithTheReference) {
  check_random(1, 40, false);
}

TEST(GpuRandomRegions, SymbolicSizesAgreeWithTheReference) {
  check_random(3000, 30, true);
}

} // namespace
} // namespace egret
