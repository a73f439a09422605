// Contractions by tiles of a matrix unit: every layout and edge, maps before and after, and which
// schedules are proposed.
#include "kernel/contraction_form.h"
#include "kernel/contraction_tiles.h"
#include "kernel/families.h"
#include "support/amx.h"
#include "support/contraction_regions.h"
#include "support/targets.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;
using testing::Einsum;
using testing::input;
using testing::region_of;
using testing::sizes;

enum class Work { None, Both };

/// Factors in bf16, summed in f32; work on both factors and after the product.
kernel::Region region(const Einsum& e, Work work = Work::None, DType result = DType::F32) {
  return region_of([&](Graph& g) {
    NodeId a = input(g, "a", e.left, e, DType::BF16), b = input(g, "b", e.right, e, DType::BF16);
    if (work == Work::Both) {
      const auto one = [&](const std::string& letters) {
        return g.broadcast(g.constant(DType::BF16, 1), e.shape_of(letters));
      };
      a = g.binary(Op::Max, a, one(e.left)); // not 0 where 0 is read
      b = g.binary(Op::Max, b, one(e.right));
    }
    NodeId product = testing::einsum(g, g.cast(a, DType::F32), g.cast(b, DType::F32), e);
    if (work == Work::Both)
      product = g.binary(Op::Add, product, input(g, "c", e.result, e));
    return std::vector{g.cast(product, result)};
  });
}

void check_matrix_tiles(const kernel::Region& r, std::string knobs = "",
                        const backend::reference::Bindings& bindings = {}) {
  if (!knobs.empty() && knobs[0] != ' ')
    knobs.insert(knobs.begin(), ' ');
  const auto schedule = kernel::parse_schedule("contraction" + knobs + " @mma=bf16_tiles");
  const auto lowered =
      kernel::contraction_generator().lower(r, schedule, testing::target_with_tiles());
  ASSERT_TRUE(lowered.ok) << lowered.reason;
  SCOPED_TRACE(to_string(schedule));
  testing::check_tiles(r, lowered.program, bindings);
}

TEST(ContractionMatrix, IsRightInEveryLayout) {
  for (const char* left : {"mk", "km"})
    for (const char* right : {"kn", "nk"})
      for (const bool shared : {false, true}) {
        SCOPED_TRACE(std::string(left) + " " + right);
        const std::string how = shared ? " shared=1" : " shared=0";
        check_matrix_tiles(region(sizes(left, right, "mn", 32, 32, 32)), how);
        check_matrix_tiles(region(sizes(left, right, "mn", 41, 53, 79)), how);
        check_matrix_tiles(region(sizes(left, right, "mn", 41, 53, 79)), "mc=32 nc=32 kc=16" + how);
      }
}

TEST(ContractionMatrix, IsRightAtEveryEdge) {
  for (const std::int64_t m : {2, 16, 33})
    for (const std::int64_t n : {2, 16, 65})
      for (const std::int64_t k : {3, 31, 64, 66})
        check_matrix_tiles(region(sizes("mk", "kn", "mn", m, n, k)), "kc=16 mc=32 nc=64");
}

TEST(ContractionMatrix, TakesEveryShapeOfTilesThatFits) {
  const auto r = region(sizes("mk", "nk", "mn", 70, 70, 64));
  for (const char* knobs : {"mr=16 nr=16", "mr=16 nr=32", "mr=32 nr=16", "mr=16 nr=64",
                            "mr=64 nr=16", "mr=48 nr=16", "mr=16 nr=48", "mr=32 nr=32 unroll=2"})
    check_matrix_tiles(r, knobs);
  const auto refused = kernel::contraction_generator().lower(
      r, kernel::parse_schedule("contraction mr=48 nr=32 @mma=bf16_tiles"),
      testing::target_with_tiles());
  EXPECT_EQ(refused.reason, "a register tile of more tiles than a matrix unit has");
}

TEST(ContractionMatrix, MakesResultsWhenTheNextProductsAreUnderWay) {
  for (const char* knobs : {"late=1", "late=1 kc=16 mc=64 nc=32", "late=1 mc=32"})
    check_matrix_tiles(region(sizes("mk", "kn", "mn", 70, 40, 40), Work::Both, DType::BF16), knobs);
}

TEST(ContractionMatrix, WorksBeforeAndAfter) {
  for (const char* left : {"mk", "km"})
    for (const char* right : {"kn", "nk"}) {
      check_matrix_tiles(region(sizes(left, right, "mn", 37, 35, 45), Work::Both), "kc=16");
      check_matrix_tiles(region(sizes(left, right, "mn", 37, 35, 64), Work::Both, DType::BF16));
    }
  check_matrix_tiles(region(sizes("bmk", "bkn", "bmn", 20, 20, 40, 3), Work::Both), "shared=0");
  check_matrix_tiles(region(sizes("bmk", "bkn", "bmn", 20, 20, 40, 3)), "shared=1");
}

TEST(ContractionMatrix, TakesUnknownSizes) {
  const Expr m = Expr::symbol("M", 1, 64), n = Expr::symbol("N", 1, 64),
             k = Expr::symbol("K", 1, 128);
  const auto r = region(sizes("mk", "kn", "mn", m, n, k));
  for (const std::int64_t size : {1, 33, 64}) {
    backend::reference::Bindings bound;
    bound.set(m, size);
    bound.set(n, 65 - size);
    bound.set(k, 2 * size);
    check_matrix_tiles(r, "kc=16 mc=32", bound);
  }
}

TEST(ContractionMatrix, ReadsWholeRowsWhereTheyAre) {
  const auto reads = [](const kernel::Region& r, const char* buffer) {
    const auto lowered = kernel::contraction_generator().lower(
        r, kernel::parse_schedule("contraction pack_left=0 pack_right=0 @mma=bf16_tiles"),
        testing::target_with_tiles());
    return std::none_of(lowered.program.buffers.begin(), lowered.program.buffers.end(),
                        [&](const auto& b) { return b.name == buffer; });
  };
  const auto whole = region(sizes("mk", "kn", "mn", 48, 40, 64));
  EXPECT_TRUE(reads(whole, "left"));
  check_matrix_tiles(whole, "pack_left=0");
  check_matrix_tiles(whole, "pack_left=0 kc=16 mc=32");
  EXPECT_FALSE(reads(region(sizes("mk", "kn", "mn", 47, 40, 64)), "left")) << "rows in part";
  EXPECT_FALSE(reads(region(sizes("mk", "kn", "mn", 48, 40, 60)), "left")) << "a part of a chunk";
  EXPECT_FALSE(reads(region(sizes("km", "kn", "mn", 48, 40, 64)), "left")) << "turned";
  EXPECT_FALSE(reads(region(sizes("mk", "kn", "mn", 48, 40, 64), Work::Both), "left")) << "work";
}

TEST(ContractionMatrix, IsProposedFirstAndRefusedByTheFactors) {
  const auto& generator = kernel::contraction_generator();
  kernel::Target target = testing::target_with_tiles();
  const auto schedule = kernel::parse_schedule("contraction @mma=bf16_tiles");
  const auto bf16 = region(sizes("mk", "kn", "mn", 128, 128, 128));
  EXPECT_EQ(generator.space(bf16, target)[0].mma, "bf16_tiles");
  for (const kernel::Schedule& s : generator.space(bf16, target)) {
    const auto lowered = generator.lower(bf16, s, target);
    EXPECT_TRUE(lowered.ok) << to_string(s) << ": " << lowered.reason;
  }
  const auto wide = testing::product_region(sizes("mk", "kn", "mn", 128, 128, 128));
  EXPECT_TRUE(generator.space(wide, target)[0].mma.empty());
  EXPECT_EQ(generator.lower(wide, schedule, target).reason,
            "its factors are not bf16, summed in f32");
  testing::set_units(target, true);
  EXPECT_NE(generator.space(bf16, target)[0].mma, "bf16_tiles");
  EXPECT_EQ(generator.lower(bf16, schedule, target).reason, "this CPU multiplies no tiles");
}

} // namespace
} // namespace egret
