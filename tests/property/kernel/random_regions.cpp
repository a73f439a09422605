// Regions of random graphs: every generator's programs against the reference.
#include "support/random_graph.h"
#include "support/region_runner.h"
#include "support/scale.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using testing::random_graph;
using testing::random_inputs;
using testing::RandomGraphOptions;

void check_regions(std::uint64_t first, std::uint64_t count, const RandomGraphOptions& options,
                   bool fuse, bool keep_all) {
  count *= static_cast<std::uint64_t>(test::rounds());
  auto targets = testing::test_targets();
  std::size_t checked = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    std::vector<testing::RegionCase> cases;
    try {
      ir::Graph graph = random_graph(seed, options);
      auto inputs = random_inputs(graph, seed, {.special = seed % 4 == 0});
      cases = testing::region_cases(graph, inputs, fuse, keep_all);
    } catch (const Error& e) {
      ASSERT_TRUE(options.symbolic)
          << "seed " << seed << ": " << e.what(); // a size that no input has
      continue;
    }
    for (auto& c : cases) {
      if (seed % 2)
        testing::take_over_operands(c.region);
      const kernel::Target& target = targets[(seed + checked++) % targets.size()];
      std::string wrong =
          testing::check_generators(c, target, {.workers = 1 + int(seed % 3), .in_place = true});
      ASSERT_TRUE(wrong.empty()) << "seed " << seed << ": " << wrong;
    }
  }
  EXPECT_GT(checked, count);
}

TEST(RandomRegions, FusedAgreeWithTheReference) {
  RandomGraphOptions options;
  options.max_elements = 400;
  check_regions(1, 60, options, true, false);
}

TEST(RandomRegions, EveryStoredValueAnOutput) {
  RandomGraphOptions options;
  options.max_elements = 300;
  check_regions(1000, 40, options, true, true);
}

TEST(RandomRegions, OpByOp) {
  RandomGraphOptions options;
  options.max_elements = 300;
  check_regions(2000, 40, options, false, false);
}

TEST(RandomRegions, SymbolicSizes) {
  RandomGraphOptions options;
  options.symbolic = true;
  options.max_elements = 300;
  check_regions(3000, 60, options, true, false);
}

} // namespace
} // namespace egret
