// What follows a product on a GPU: in which order results are made of its sums, and how they leave.
#include "backend/cuda/render.h"
#include "kernel/families.h"
#include "support/contraction_regions.h"
#include "unit/kernel/gpu_products.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;
using testing::built_region;
using testing::check_product;
using testing::Einsum;
using testing::gpu;
using testing::input;
using testing::kMma;
using testing::kWgmma;
using testing::sizes;

/// Products in 16 bits, and their squares in f32.
kernel::Region in_two_types(const Einsum& e) {
  return built_region([&](Graph& g) {
    const NodeId a = input(g, "a", e.left, e, DType::BF16),
                 b = input(g, "b", e.right, e, DType::BF16);
    const NodeId product = testing::einsum(g, a, b, e);
    const NodeId wide = g.cast(product, DType::F32);
    return std::vector{product, g.binary(Op::Mul, wide, wide)};
  });
}

TEST(GpuEpilogues, ResultsOfTwoTypesLeaveThroughOnePieceOfSharedMemory) {
  for (const std::string& schedule : {kMma + " staged=1", kWgmma + " staged=1"})
    check_product(in_two_types(sizes("mk", "kn", "mn", 70, 72, 64)), schedule);
  // The tiles that are tried first fill a block's shared memory but for that piece.
  const kernel::Region large = in_two_types(sizes("mk", "kn", "mn", 8192, 8192, 4096));
  int tried = 0;
  for (const kernel::Schedule& s : kernel::gpu_contraction_generator().space(large, gpu())) {
    const kernel::Lowered lowered = kernel::gpu_contraction_generator().lower(large, s, gpu());
    ASSERT_TRUE(lowered.ok) << to_string(s) << ": " << lowered.reason;
    EXPECT_LE(backend::cuda::dynamic_shared_bytes(lowered.program), gpu().block_shared_bytes)
        << to_string(s);
    if (++tried == 6)
      break;
  }
}

/// A step by the product with a moment of it: what optimizers make of a gradient. The first output
/// is the moment, the second what is stepped, turned where `turned`, and the third the step in
/// bf16.
kernel::Region stepped(const Einsum& e, bool turned) {
  return built_region([&](Graph& g) {
    const NodeId a = input(g, "a", e.left, e, DType::BF16),
                 b = input(g, "b", e.right, e, DType::BF16);
    const NodeId gradient = g.cast(testing::einsum(g, a, b, e), DType::F32);
    const Shape shape = g[gradient].shape;
    const auto number = [&](double v) { return g.broadcast(g.constant(DType::F32, v), shape); };
    const NodeId moment =
        g.binary(Op::Add, g.binary(Op::Mul, g.input("moment", DType::F32, shape), number(0.9)),
                 g.binary(Op::Mul, gradient, number(0.1)));
    const NodeId square = g.binary(Op::Add, g.binary(Op::Mul, moment, moment), number(0.5));
    const NodeId step = g.binary(Op::Div, moment, g.unary(Op::Sqrt, square));
    const NodeId next = g.binary(Op::Add, g.input("weight", DType::F32, shape), step);
    return std::vector{moment, turned ? g.permute(next, {1, 0}) : next, g.cast(step, DType::BF16)};
  });
}

/// Sums in f32, turned, and in bytes whether they are positive.
kernel::Region turned_beside_bytes(const Einsum& e) {
  return built_region([&](Graph& g) {
    const NodeId a = input(g, "a", e.left, e, DType::BF16),
                 b = input(g, "b", e.right, e, DType::BF16);
    const NodeId sum = g.cast(testing::einsum(g, a, b, e), DType::F32);
    const NodeId zero = g.broadcast(g.constant(DType::F32, 0.0), g[sum].shape);
    return std::vector{g.permute(sum, {1, 0}), g.binary(Op::Lt, zero, sum)};
  });
}

/// A sum of products times its sine, and the cosine of its double, in 16 bits.
kernel::Region waved(const Einsum& e) {
  return built_region([&](Graph& g) {
    const NodeId a = input(g, "a", e.left, e, DType::BF16),
                 b = input(g, "b", e.right, e, DType::BF16);
    const NodeId sum = g.cast(testing::einsum(g, a, b, e), DType::F32);
    const auto narrow = [&](NodeId x) { return g.cast(x, DType::BF16); };
    return std::vector{narrow(g.binary(Op::Mul, sum, g.unary(Op::Sin, sum))),
                       narrow(g.unary(Op::Cos, g.binary(Op::Add, sum, sum)))};
  });
}

TEST(GpuEpilogues, SumsLeaveThroughSharedMemoryWhereResultsAreAsWide) {
  for (const bool turned : {false, true})
    for (const auto& [m, n] : {std::pair{70, 72}, {64, 64}, {37, 52}, {33, 35}}) {
      check_product(stepped(sizes("mk", "kn", "mn", m, n, 64), turned), kMma + " staged=1");
      check_product(stepped(sizes("mk", "nk", "mn", m, n, 64), turned), kWgmma + " staged=1");
      check_product(turned_beside_bytes(sizes("mk", "nk", "mn", m, n, 64)), kWgmma + " staged=1");
    }
}

TEST(GpuEpilogues, WhatIsMadeOfWideSumsIsOneCodeForAllColumnsOfATile) {
  const kernel::Region region = stepped(sizes("mk", "kn", "mn", 512, 1024, 256), false);
  const auto operations = [&](int columns) {
    const std::string schedule =
        fmt::format("gpu_contraction bm=64 bn={} staged=1 stages=2 wm=1 @mma=wgmma", columns);
    const kernel::Lowered lowered =
        kernel::gpu_contraction_generator().lower(region, kernel::parse_schedule(schedule), gpu());
    EXPECT_TRUE(lowered.ok) << lowered.reason;
    int count = 0;
    kernel::each_statement(lowered.program.body, [&](const kernel::Stmt& s) {
      const auto* let = kernel::get_if<kernel::Let>(s);
      count += let && kernel::get_if<kernel::inst::Apply>(let->inst);
    });
    return count;
  };
  EXPECT_EQ(operations(64), operations(256));
}

TEST(GpuEpilogues, SumsAreCollectedWhereAResultIsAsWideElseResults) {
  const auto collected = [](const kernel::Region& region, std::string_view name) {
    const kernel::Lowered lowered = kernel::gpu_contraction_generator().lower(
        region, kernel::parse_schedule("gpu_contraction " + kWgmma + " staged=1"), gpu());
    EXPECT_TRUE(lowered.ok) << lowered.reason;
    return std::ranges::count(lowered.program.buffers, name, &kernel::Buffer::name);
  };
  const Einsum e = sizes("mk", "kn", "mn", 64, 64, 64);
  EXPECT_EQ(collected(stepped(e, false), "sums"), 1);
  EXPECT_EQ(collected(stepped(e, false), "results0"), 0);
  EXPECT_EQ(collected(waved(e), "sums"), 0);
  EXPECT_EQ(collected(waved(e), "results0"), 1);
}

TEST(GpuEpilogues, SeveralNarrowResultsAgreeWithTheReference) {
  for (const int n : {200, 187})
    check_product(waved(sizes("mk", "nk", "mn", 70, n, 64)),
                  "bm=64 bn=128 staged=1 stages=2 wm=1 @mma=wgmma");
}

} // namespace
} // namespace egret
