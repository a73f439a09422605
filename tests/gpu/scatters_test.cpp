// Sums by an index on the GPU: every schedule of the generator against the reference, the same bits
// twice, whether updates meet now and then, in a few elements, or all in one.
#include "gpu/gpu.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

struct ScatterCase {
  std::int64_t elements, updates;
  std::int64_t different; ///< elements from -1 on that updates may go to
  Shape columns;
};

class Scatters : public ::testing::TestWithParam<ScatterCase> {};

TEST_P(Scatters, OfAllSchedulesAgreeWithTheReference) {
  const ScatterCase& c = GetParam();
  ir::Graph g;
  Shape data{c.elements}, updates{c.updates};
  data.insert(data.end(), c.columns.begin(), c.columns.end());
  updates.insert(updates.end(), c.columns.begin(), c.columns.end());
  const ir::NodeId index = g.input("index", DType::I32, {c.updates});
  g.outputs = {g.scatter(Op::ScatterAdd, g.input("data", DType::F32, data), index,
                         g.input("updates", DType::F32, updates), 0)};
  for (const bool special : {false, true}) {
    auto inputs = testing::random_inputs(g, 7, {.special = special});
    testing::Rng rng(11);
    for (std::int64_t i = 0; i < c.updates; ++i)
      inputs[0].set(i, {.i = rng.below(c.different) - 1});
    for (const testing::RegionCase& region : testing::region_cases(g, inputs))
      ASSERT_EQ(testing::check_all_schedules(region, "gpu_scatter"), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Scatters,
                         ::testing::Values(ScatterCase{5000, 20000, 5003, {}},
                                           ScatterCase{300001, 20000, 300001, {}},
                                           ScatterCase{5000, 20000, 2, {}},
                                           ScatterCase{5000, 20000, 6, {}},
                                           ScatterCase{2500, 3000, 2502, {3}}));

} // namespace
} // namespace egret
