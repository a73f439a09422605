// Orders of operands in memory that generators ask for, and kernels that read them where they are.
#include "kernel/layouts.h"

#include "backend/cpu/cpu_device.h"
#include "backend/reference/kernel_check.h"
#include "backend/reference/program_interpreter.h"
#include "kernel/contraction_form.h"
#include "kernel/families.h"
#include "support/contraction_regions.h"
#include "support/cpu_levels.h"
#include "support/region_runner.h"
#include "support/targets.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;
using kernel::Layout;
using testing::Einsum;
using testing::input;
using testing::product_region;
using testing::sizes;

/// a [m, k] times a matrix [n, k] that lies in panels of `tile` columns, perhaps of pairs.
kernel::Region paneled(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t tile,
                       bool pairs, DType dtype = DType::F32) {
  return testing::region_of([&](Graph& g) {
    const Einsum e = sizes("mk", "nk", "mn", m, n, k);
    const std::int64_t panels = (n + tile - 1) / tile;
    const NodeId a = input(g, "a", "mk", e, dtype);
    NodeId b = 0;
    if (pairs)
      b = g.permute(g.input("b", dtype, {Expr(panels), Expr(k / 2), Expr(tile), Expr(2)}),
                    {0, 2, 1, 3});
    else
      b = g.permute(g.input("b", dtype, {Expr(panels), Expr(k), Expr(tile)}), {0, 2, 1});
    b = g.shrink(g.reshape(b, {Expr(panels * tile), Expr(k)}), {Expr(0), Expr(0)},
                 {Expr(n), Expr(k)});
    const auto wide = [&](NodeId id) { return g.cast(id, DType::F32); };
    return std::vector{testing::einsum(g, wide(a), wide(b), e)};
  });
}

bool packs_right(const kernel::KernelProgram& program) {
  return std::any_of(program.buffers.begin(), program.buffers.end(),
                     [](const kernel::Buffer& b) { return b.name == "right"; });
}

/// The first schedules, interpreted and on this CPU.
void check_layout(const kernel::Region& region, const kernel::Target& target,
                  std::size_t most = 12) {
  const kernel::Generator& generator = kernel::contraction_generator();
  auto space = generator.space(region, target);
  ASSERT_FALSE(space.empty());
  space.resize(std::min(space.size(), most));
  EXPECT_FALSE(packs_right(generator.lower(region, space[0], target).program))
      << to_string(space[0]);
  for (const kernel::Schedule& schedule : space) {
    const kernel::Lowered lowered = generator.lower(region, schedule, target);
    if (!lowered.ok)
      continue;
    const auto interpreted = backend::reference::verify_kernel(
        region, lowered.program,
        [&](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
          backend::reference::interpret(program, block, {.workers = 2});
        });
    EXPECT_TRUE(interpreted.ok) << to_string(schedule) << "\n" << interpreted.message;
    backend::Device& device = testing::cpu_at("native");
    if (target.vector_bytes > device.target().vector_bytes ||
        (testing::has_pairs(target) && !testing::has_pairs(device.target())))
      continue;
    const auto ran = backend::reference::verify_kernel(
        region, lowered.program,
        [&](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
          device.launch(*device.compile(program), program, block);
        });
    EXPECT_TRUE(ran.ok) << to_string(schedule) << "\n" << ran.message;
  }
}

TEST(Layouts, HaveDigitsAndSizes) {
  const Layout panels{{40, 36}, {{0, 0}, {1, 0}, {0, 16}}};
  EXPECT_EQ(to_string(panels), "[n0/16,n1,n0%16]");
  EXPECT_EQ(extents_of(panels), (std::vector<std::int64_t>{3, 36, 16}));
  EXPECT_FALSE(fits_exactly(panels));
  EXPECT_FALSE(kernel::is_permutation(panels));
  const Layout turned{{40, 36}, {{1, 0}, {0, 0}}};
  EXPECT_TRUE(is_permutation(turned) && fits_exactly(turned));
  EXPECT_NE(hash_of(panels), hash_of(turned));
}

TEST(Layouts, AProductAsksForPanelsOfItsRightSide) {
  const kernel::Target target = testing::test_targets()[0];
  const auto wishes = [&](const char* right, std::int64_t m = 12, Expr n = 40) {
    return kernel::contraction_generator().layouts(
        product_region(sizes("mk", right, "mn", m, n, 36)), target);
  };
  const auto turned = wishes("nk");
  ASSERT_EQ(turned.size(), 2u);
  EXPECT_EQ(turned[0].what.substr(0, 10), "panels of ");
  EXPECT_EQ(turned[0].operand, 1);
  EXPECT_EQ(turned[0].layout.box, (std::vector<std::int64_t>{40, 36}));
  EXPECT_EQ(to_string(turned[1].layout), "[n1,n0]");
  EXPECT_EQ(wishes("kn").size(), 1u) << "it goes along the columns already";
  EXPECT_TRUE(wishes("nk", 1).empty()) << "a row's products are read where they are";
  EXPECT_TRUE(wishes("nk", 12, Expr::symbol("N", 2, 64)).empty());
}

TEST(Layouts, PanelsAreReadWhereTheyAre) {
  for (const auto& target : testing::test_targets())
    for (const auto [m, n, k] : {std::array{5, 64, 20}, {12, 40, 36}, {7, 129, 5}, {2, 70, 33}}) {
      const std::int64_t tile = 2 * target.vector_bytes / 4;
      const auto region = paneled(m, n, k, tile, false);
      if (n > tile) {
        const auto found = kernel::find_contraction(region);
        ASSERT_TRUE(found.ok) << found.reason;
        EXPECT_EQ(found.form.right.tile, tile) << kernel::print(region);
        EXPECT_FALSE(found.form.right.pairs);
      }
      check_layout(region, target, 6);
    }
}

TEST(Layouts, PanelsOfBf16AreWidenedAsTheyAreRead) {
  const auto target = testing::test_targets()[0];
  check_layout(paneled(6, 100, 24, 32, false, DType::BF16), target, 6);
}

TEST(Layouts, PairsAreReadAsWords) {
  auto target = testing::test_targets()[0];
  testing::set_units(target, true);
  for (const auto [m, n, k] : {std::array{5, 64, 20}, {12, 40, 36}, {7, 129, 6}}) {
    const auto region = paneled(m, n, k, 32, true, DType::BF16);
    const auto found = kernel::find_contraction(region);
    ASSERT_TRUE(found.ok) << found.reason;
    EXPECT_EQ(found.form.right.tile, 32) << kernel::print(region);
    EXPECT_TRUE(found.form.right.pairs);
    EXPECT_EQ(kernel::contraction_generator().space(region, target)[0].mma, "bf16_pairs");
    check_layout(region, target);
  }
}

TEST(Layouts, AReductionAsksForWholeRows) {
  const auto region = testing::region_of([](Graph& g) {
    return std::vector{
        g.reduce(Op::ReduceSum, g.input("x", DType::F32, {Expr(30), Expr(40)}), {0})};
  });
  std::vector<kernel::LayoutWish> wishes;
  const kernel::Target target = testing::test_targets()[0];
  for (const kernel::Generator* generator : kernel::generators(target))
    for (auto& wish : generator->layouts(region, target))
      wishes.push_back(std::move(wish));
  ASSERT_EQ(wishes.size(), 1u);
  EXPECT_EQ(to_string(wishes[0].layout), "[n1,n0]");
}

TEST(Layouts, AGpuAsksForOrdersThatItsCopiesAreWideIn) {
  const kernel::Target gpu = testing::test_gpu();
  const auto wishes = [&](const char* left, const char* right, DType dtype) {
    std::string text;
    for (const auto& wish : kernel::gpu_contraction_generator().layouts(
             product_region(sizes(left, right, "mn", 64, 96, 32), dtype), gpu))
      text += std::to_string(wish.operand) + to_string(wish.layout) + " ";
    return text;
  };
  EXPECT_EQ(wishes("mk", "nk", DType::F32), "0[n1,n0] 1[n1,n0] ");
  EXPECT_EQ(wishes("km", "kn", DType::F32), "");
  EXPECT_FALSE(kernel::is_permutation({{2, 3}, {{0, 0}, {1, 8}}}))
      << "it has room at the ends of rows";
}

} // namespace
} // namespace egret
