// Products whose slices are combined in their kernels: every template and schedule through the
// interpreter, against the reference.
#include "backend/cuda/target.h"
#include "backend/reference/compare.h"
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/slices.h"
#include "support/random_graph.h"
#include "support/region_runner.h"
#include "support/sliced_products.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace egret {
namespace {

using ir::Graph;
using testing::RegionCase;
using testing::SlicedProduct;

RegionCase case_of(const SlicedProduct& product, const kernel::Target& target) {
  const Graph g = testing::graph_of(product);
  std::vector<RegionCase> cases =
      testing::region_cases(g, testing::random_inputs(g, 1, {.special = false}));
  EXPECT_EQ(cases.size(), 1u) << product.name();
  return testing::aligned_for(cases.at(0), target);
}

const SlicedProduct kCells[] = {
    {.rows = 5, .length = 9, .depth = 7},
    {.rows = 16, .length = 32, .depth = 24, .weights_transposed = true},
    {.rows = 13, .length = 40, .depth = 33, .slices = 3},
    {.rows = 7, .length = 21, .depth = 12, .slices = 2, .weights_transposed = true},
    {.rows = 20, .length = 16, .depth = 40, .slices = 4, .dtype = DType::BF16},
    {.rows = 3,
     .length = 50,
     .depth = 64,
     .slices = 3,
     .dtype = DType::BF16,
     .weights_transposed = true},
    {.rows = 9, .length = 6, .depth = 10, .slices = 8},
    {.rows = 6, .length = 33, .depth = 18, .slices = 2, .batch = 3},
};

TEST(Slices, OfACpusProductsAreCombinedInItsKernel) {
  for (const SlicedProduct& cell : kCells)
    for (const kernel::Target& target : testing::test_targets()) {
      const RegionCase c = case_of(cell, target);
      ASSERT_GE(kernel::sliced_axis(c.region), 0) << cell.name();
      EXPECT_FALSE(kernel::contraction_generator().space(c.region, target).empty()) << cell.name();
      EXPECT_EQ(testing::check_generators(c, target), "") << cell.name();
    }
}

TEST(Slices, OfAGpusProductsAreCombinedInItsKernel) {
  for (const SlicedProduct& cell : kCells)
    for (const int capability : {80, 90}) {
      const kernel::Target target = backend::cuda::known_target(capability);
      const RegionCase c = case_of(cell, target);
      ASSERT_GE(kernel::sliced_axis(c.region), 0) << cell.name();
      EXPECT_FALSE(kernel::gpu_contraction_generator().space(c.region, target).empty())
          << cell.name();
      EXPECT_EQ(testing::check_generators(c, target, {}, 6), "") << cell.name();
    }
}

TEST(Slices, AreTakenAlongInSharesOfTheDepthToo) {
  const SlicedProduct cell{.rows = 6, .length = 20, .depth = 90};
  const kernel::Target gpu = backend::cuda::known_target(90);
  EXPECT_EQ(testing::check_schedule(
                case_of(cell, gpu), kernel::gpu_contraction_generator(),
                kernel::parse_schedule(
                    "gpu_contraction bk=16 bm=8 bn=128 stages=2 wm=1 wn=1 @split_reduce=3"),
                gpu, {.workers = 3}, true),
            "");
  const kernel::Target cpu = testing::test_targets()[0];
  EXPECT_EQ(testing::check_schedule(
                case_of(cell, cpu), kernel::contraction_generator(),
                kernel::parse_schedule("contraction kc=16 mr=3 nr=64 @split_reduce=3"), cpu,
                {.workers = 3}, true),
            "");
  EXPECT_EQ(testing::check_schedule(case_of(cell, cpu), kernel::contraction_generator(),
                                    kernel::parse_schedule("contraction kc=32 mr=2 nr=128"), cpu,
                                    {}, true),
            "");
}

TEST(Slices, OfSmallProductsHaveABlockForEachGroupOfRows) {
  const kernel::Target gpu = backend::cuda::known_target(90);
  for (const bool transposed : {false, true})
    for (const char* schedule :
         {"gpu_skinny outputs=4 rows=4 unroll=1 wk=1", "gpu_skinny outputs=4 rows=3 unroll=2 wk=2",
          "gpu_skinny outputs=8 rows=1 unroll=1 wk=1"})
      EXPECT_EQ(testing::check_schedule(case_of({.rows = 13,
                                                 .length = 18,
                                                 .depth = 70,
                                                 .weights_transposed = transposed,
                                                 .batch = 2},
                                                gpu),
                                        kernel::gpu_skinny_generator(),
                                        kernel::parse_schedule(schedule), gpu, {.workers = 3},
                                        true),
                "");
  // Few tiles of a deep product are for many warps; many tiles are for the ring.
  const auto groups = [&](std::int64_t rows, std::int64_t length) {
    return !kernel::gpu_skinny_generator()
                .space(testing::region_of_slices({.rows = rows, .length = length, .depth = length}),
                       gpu)
                .empty();
  };
  EXPECT_TRUE(groups(16, 128));
  EXPECT_TRUE(groups(64, 256));
  EXPECT_FALSE(groups(4096, 1024));
}

TEST(Slices, StayApartWhereTilesWithPlacesOfAllTakeLonger) {
  // A layer of a language model: queued products of a GPU are twice as fast as those that hold
  // slices, which no launch makes up for.
  const kernel::Target gpu = backend::cuda::known_target(90);
  const SlicedProduct small{
      .rows = 64, .length = 64, .depth = 128, .slices = 2, .dtype = DType::BF16};
  SlicedProduct large = small;
  large.rows = large.length = large.depth = 4096;
  EXPECT_TRUE(kernel::slices_pay(testing::region_of_slices(small), gpu, 2e-6));
  EXPECT_FALSE(kernel::slices_pay(testing::region_of_slices(large), gpu, 2e-6));
  EXPECT_TRUE(kernel::slices_pay(testing::region_of_slices(large), gpu, 1));
}

TEST(Slices, OfACpuAreWholeVectors) {
  const kernel::Target cpu = testing::test_targets()[0];
  const std::int64_t lanes = cpu.vector_bytes / 4;
  const SlicedProduct whole{.rows = 8, .length = 2 * lanes, .depth = 16};
  SlicedProduct cut = whole;
  cut.length -= 1;
  EXPECT_TRUE(kernel::slices_pay(testing::region_of_slices(whole), cpu, 0));
  EXPECT_FALSE(kernel::slices_pay(testing::region_of_slices(cut), cpu, 1));
}

TEST(Slices, SchedulesWithoutPlacesOfAllAreRefused) {
  const kernel::Target gpu = backend::cuda::known_target(90);
  const kernel::Region region = testing::region_of_slices({.rows = 32, .length = 32, .depth = 32});
  const auto reason = [&](const char* schedule) {
    return kernel::gpu_contraction_generator()
        .lower(region, kernel::parse_schedule(schedule), gpu)
        .reason;
  };
  EXPECT_EQ(reason("gpu_contraction bk=16 bm=32 bn=64 stages=2 wm=1 wn=1"),
            "a warp's part has no columns of some slice");
  EXPECT_EQ(reason("gpu_contraction bk=16 bm=32 bn=128 stages=2 wm=1 wn=1"), "");
  const kernel::Region low = testing::region_of_slices(
      {.rows = 64, .length = 64, .depth = 64, .slices = 2, .dtype = DType::BF16});
  EXPECT_EQ(
      kernel::gpu_contraction_generator()
          .lower(low,
                 kernel::parse_schedule("gpu_contraction bm=64 bn=64 stages=2 wm=1 @mma=wgmma"),
                 gpu)
          .reason,
      "slices of its result are combined");
}

} // namespace
} // namespace egret
