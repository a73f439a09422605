// Products of a few rows whose matrix comes through a ring of bulk copies, through the interpreter.
#include "backend/cuda/render.h"
#include "backend/cuda/target.h"
#include "backend/reference/kernel_check.h"
#include "backend/reference/program_interpreter.h"
#include "kernel/families.h"
#include "kernel/serialize.h"
#include "support/contraction_regions.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace egret::ring {
namespace {

using backend::reference::verify_kernel;
using ir::Graph;
using ir::NodeId;
using testing::Einsum;
using testing::input;
using testing::sizes;

kernel::Target gpu() {
  return backend::cuda::known_target(90);
}

kernel::Region plain(const Einsum& e, DType dtype) {
  return testing::product_region(e, dtype, 64);
}

kernel::Lowered lower(const kernel::Region& region, const std::string& knobs) {
  return kernel::gpu_ring_generator().lower(region, kernel::parse_schedule("gpu_ring " + knobs),
                                            gpu());
}

/// As many blocks as `workers` says, so that some take several tiles.
void check(const kernel::Region& region, const std::string& knobs, int workers = 2) {
  const kernel::Lowered lowered = lower(region, knobs);
  ASSERT_TRUE(lowered.ok) << knobs << ": " << lowered.reason << "\n" << kernel::print(region);
  const auto again = kernel::program_of_bytes(kernel::to_bytes(lowered.program));
  EXPECT_EQ(hash_of(again), hash_of(lowered.program));
  EXPECT_TRUE(kernel::has_settled(again));
  const auto launch = [&](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
    backend::reference::interpret(program, block, {.workers = workers});
  };
  try {
    const auto result = verify_kernel(region, lowered.program, launch);
    EXPECT_TRUE(result.ok) << knobs << "\n" << result.message << "\n" << kernel::print(region);
  } catch (const std::exception& e) {
    FAIL() << knobs << "\n" << e.what() << "\n" << kernel::print(lowered.program);
  }
}

/// x a^T * relu(x b^T) of two matrices.
kernel::Region gated(std::int64_t columns, std::int64_t depth, DType dtype) {
  Graph g;
  const Einsum e = sizes("mk", "nk", "mn", 1, columns, depth);
  const NodeId x = input(g, "x", e.left, e, dtype);
  const NodeId a = testing::einsum(g, x, input(g, "a", e.right, e, dtype), e),
               b = testing::einsum(g, x, input(g, "b", e.right, e, dtype), e);
  const NodeId zero = g.broadcast(g.constant(dtype, 0.0), g[a].shape);
  g.outputs = {g.binary(Op::Mul, a, g.binary(Op::Max, b, zero))};
  using backend::reference::HostArray;
  const std::vector<HostArray> inputs{HostArray(dtype, {1, depth}),
                                      HostArray(dtype, {columns, depth}),
                                      HostArray(dtype, {columns, depth})};
  const auto cases = testing::region_cases(g, inputs, gpu());
  EXPECT_EQ(cases.size(), 1u);
  return testing::aligned_for(cases.at(0), gpu()).region;
}

/// Weights of 8 bits with a scale for each of their rows.
kernel::Region scaled(std::int64_t columns, std::int64_t depth) {
  return testing::region_of(
      [&](Graph& g) {
        const Einsum e = sizes("mk", "nk", "mn", 1, columns, depth);
        const NodeId x = input(g, "x", e.left, e, DType::F32),
                     codes = g.cast(input(g, "w", e.right, e, DType::I8), DType::F32),
                     scale = g.broadcast(g.input("scale", DType::F32, {columns, 1}),
                                         e.shape_of(e.right));
        return std::vector{testing::einsum(g, x, g.binary(Op::Mul, codes, scale), e)};
      },
      64);
}

TEST(GpuRing, RowsOfTheMatrixAreMultipliedInEveryType) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const std::int64_t depth : {264, 600}) { // steps that end within a warp, or behind one
      check(plain(sizes("mk", "nk", "mn", 1, 23, depth), dtype),
            "warps=1 rows=4 stages=3 columns=12");
      check(plain(sizes("mk", "nk", "mn", 3, 23, depth), dtype),
            "warps=2 rows=3 stages=2 columns=12");
      check(plain(sizes("k", "nk", "n", 1, 9, depth), dtype), "warps=4 rows=1 stages=2 columns=9");
    }
}

TEST(GpuRing, BatchesAndTilesFollowEachOtherInARing) {
  check(plain(sizes("bmk", "bnk", "bmn", 2, 17, 128, 3), DType::BF16),
        "warps=2 rows=2 stages=5 columns=6", 3);
  check(plain(sizes("mk", "nk", "mn", 1, 40, 128), DType::F32), "warps=1 rows=8 stages=2 columns=8",
        1);
  check(plain(sizes("mk", "nk", "mn", 1, 2, 128), DType::F32), "warps=1 rows=8 stages=2 columns=8",
        4); // less than a tile, and blocks without one
}

TEST(GpuRing, CopiesUnderWayMayBeFewerThanTheRingHolds) {
  for (const char* knobs :
       {"warps=2 rows=2 stages=5 flight=2 columns=6", "warps=2 rows=2 stages=3 flight=1 columns=6",
        "warps=1 rows=1 stages=4 flight=3 columns=2",
        "warps=1 rows=3 stages=6 flight=2 columns=18"})
    check(plain(sizes("bmk", "bnk", "bmn", 2, 17, 128, 3), DType::BF16), knobs, 3);
  // The producer waits for a copy of its own.
  const auto waits = [](const std::string& knobs) {
    const auto lowered = lower(plain(sizes("mk", "nk", "mn", 1, 40, 128), DType::F32),
                               "warps=1 rows=1 stages=4 columns=8 " + knobs);
    const std::string text = kernel::print(lowered.program);
    int count = 0;
    for (std::size_t at = 0;
         (at = text.find("mbarrier_wait(barrier=full", at)) != std::string::npos; ++at)
      ++count;
    return count;
  };
  EXPECT_EQ(waits("flight=2"), waits("flight=4") + 1);
  EXPECT_NE(lower(plain(sizes("mk", "nk", "mn", 1, 40, 128), DType::F32),
                  "warps=1 rows=1 stages=4 flight=5 columns=8")
                .reason.find("flight"),
            std::string::npos);
}

TEST(GpuRing, TwoMatricesShareTheirRows) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    check(gated(21, 264, dtype), "warps=2 rows=2 stages=3 columns=8");
    check(gated(21, 128, dtype), "warps=1 rows=3 stages=2 columns=21");
  }
}

TEST(GpuRing, PackedWeightsAreUnpackedBehindTheRing) {
  check(scaled(19, 272), "warps=2 rows=4 stages=3 columns=12");
  const kernel::Lowered lowered = lower(scaled(19, 272), "warps=2 rows=4 stages=3 columns=12");
  int settled = 0;
  for (const kernel::Buffer& b : lowered.program.buffers)
    settled += b.settled;
  EXPECT_EQ(settled, 1); // the scales are read where they are
}

TEST(GpuRing, TakesWhatFillsTheMachineAndNothingElse) {
  kernel::Target small = gpu();
  small.workers = 4;
  const auto offers = [&](const kernel::Region& region) {
    const auto space = kernel::gpu_ring_generator().space(region, small);
    for (const kernel::Schedule& s : space) {
      const kernel::Lowered lowered = kernel::gpu_ring_generator().lower(region, s, small);
      EXPECT_TRUE(lowered.ok) << to_string(s) << ": " << lowered.reason;
      // Each multiprocessor has about as many columns as any other.
      const auto blocks = lowered.program.launch.workers.value();
      const auto rounds = (blocks + small.workers - 1) / small.workers;
      EXPECT_GE(10 * blocks, 9 * rounds * small.workers) << to_string(s);
    }
    return !space.empty();
  };
  EXPECT_TRUE(offers(plain(sizes("mk", "nk", "mn", 1, 128, 4096), DType::BF16)));
  EXPECT_TRUE(offers(plain(sizes("mk", "nk", "mn", 4, 433, 1024), DType::BF16)));
  EXPECT_TRUE(offers(gated(434, 512, DType::BF16)));
  EXPECT_FALSE(offers(plain(sizes("mk", "nk", "mn", 1, 16, 4096), DType::BF16)));   // small
  EXPECT_FALSE(offers(plain(sizes("mk", "nk", "mn", 16, 433, 1024), DType::BF16))); // many rows
  EXPECT_FALSE(offers(plain(sizes("mk", "kn", "mn", 1, 128, 4096), DType::BF16)));  // across
  EXPECT_FALSE(offers(plain(sizes("mk", "nk", "mn", 1, 8192, 128), DType::BF16)));  // shallow
  EXPECT_FALSE(offers(plain(sizes("mk", "nk", "mn", 1, 128, 4098), DType::BF16)));  // no 16 bytes
  // What is read so early is no part of a launch that does other work as well.
  EXPECT_FALSE(
      kernel::lower_part(plain(sizes("mk", "nk", "mn", 1, 128, 4096), DType::BF16), small).ok);
  EXPECT_TRUE(
      kernel::lower_part(plain(sizes("mk", "nk", "mn", 1, 16, 4096), DType::BF16), small).ok);
  const kernel::Region region = plain(sizes("mk", "nk", "mn", 1, 64, 4098), DType::BF16);
  EXPECT_EQ(lower(region, "rows=1 columns=4").reason,
            "no array has rows that bulk copies can bring");
  EXPECT_EQ(
      lower(plain(sizes("mk", "nk", "mn", 8, 64, 4096), DType::BF16), "rows=1 columns=4").reason,
      "more of the rows than a thread has registers for");
  EXPECT_FALSE(kernel::gpu_ring_generator()
                   .lower(region, kernel::Schedule{}, backend::cuda::known_target(80))
                   .ok);
}

/// The ring is filled before the wait for the launch before, where that is allowed, and everything
/// else is read behind it.
TEST(GpuRing, WaitsForTheLaunchBeforeBehindTheFirstCopies) {
  const kernel::Lowered lowered =
      lower(plain(sizes("mk", "nk", "mn", 1, 64, 256), DType::BF16), "warps=2 rows=2 columns=8");
  ASSERT_TRUE(lowered.ok) << lowered.reason;
  const std::string text =
      backend::cuda::render_cuda(lowered.program, backend::cuda::CudaTarget{90, true});
  const auto first = [&](const char* what) { return text.rfind(what); };
  ASSERT_NE(text.find("if (!args.settled) eg_wait_for_launch_before();"), std::string::npos)
      << text;
  // The consumers' branch stands first: all loads of it are behind its wait.
  const std::size_t branch = text.find("extern \"C\""),
                    wait = text.find("\n    eg_wait_for_launch_before();", branch),
                    load = text.find("eg_load", branch);
  ASSERT_NE(wait, std::string::npos) << text;
  EXPECT_LT(wait, load) << text;
  EXPECT_LT(wait, text.find("eg_let_next_launch_come();", branch)) << text;
  EXPECT_LT(first("eg_wait_for_launch_before();"), first("eg_bulk_copy(")) << text;
}

} // namespace
} // namespace egret::ring
