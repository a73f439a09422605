// Scans on the GPU: every schedule of the generator against the reference, the same bits twice.
#include "gpu/gpu.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

struct ScanCase {
  Op op;
  DType type;
  Shape shape;
  std::int64_t axis;
};

class Scans : public ::testing::TestWithParam<ScanCase> {};

TEST_P(Scans, OfAllSchedulesAgreeWithTheReference) {
  const ScanCase& c = GetParam();
  ir::Graph g;
  const ir::NodeId x = g.input("x", c.type, c.shape), w = g.input("w", c.type, c.shape);
  const ir::NodeId made = g.scan(c.op, g.binary(Op::Mul, x, w), c.axis);
  g.outputs = {made, g.binary(Op::Add, made, x)};
  for (const bool special : {false, true}) {
    const auto inputs = testing::random_inputs(g, 7, {.special = special, .range = 1});
    for (const testing::RegionCase& region : testing::region_cases(g, inputs))
      ASSERT_EQ(testing::check_all_schedules(region, "gpu_scans"), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Scans,
                         ::testing::Values(ScanCase{Op::ScanSum, DType::F32, {300001}, 0},
                                           ScanCase{Op::ScanSum, DType::F32, {3, 131072}, 1},
                                           ScanCase{Op::ScanMax, DType::BF16, {1000, 77}, 1},
                                           ScanCase{Op::ScanSum, DType::I64, {200, 1000}, 1},
                                           ScanCase{Op::ScanProd, DType::F64, {300, 50}, 0},
                                           ScanCase{Op::ScanSum, DType::F16, {40000, 6}, 0},
                                           ScanCase{Op::ScanSum, DType::F32, {5, 700, 64}, 1}));

} // namespace
} // namespace egret
