// Regions that are equal but for their sizes: what stands for all of them, and what is refused.
#include "kernel/equal_forms.h"

#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <functional>

namespace egret::kernel {
namespace {

using ir::Graph;
using ir::NodeId;

Region region_of(const std::function<NodeId(Graph&)>& make) {
  Graph g;
  g.outputs = {make(g)};
  return testing::regions_of(g, testing::test_targets()[0]).at(0);
}
Region unary_of(Op op, const Shape& shape) {
  return region_of([&](Graph& g) { return g.unary(op, g.input("x", DType::F32, shape)); });
}
Region sum_of(std::int64_t rows, std::int64_t columns, std::int64_t axis) {
  return region_of([&](Graph& g) {
    return g.reduce(Op::ReduceSum, g.input("x", DType::F32, {rows, columns}), {axis});
  });
}

std::optional<CommonForm> common_of(const std::vector<Region>& regions) {
  std::vector<const Region*> pointers;
  for (const Region& region : regions)
    pointers.push_back(&region);
  return common_form(pointers);
}

TEST(EqualForms, OneSizeIsOneSymbolWithItsBoundsAndDivisor) {
  const auto form =
      common_of({unary_of(Op::Cos, {12}), unary_of(Op::Cos, {3, 2, 5}), unary_of(Op::Cos, {900})});
  ASSERT_TRUE(form);
  ASSERT_EQ(form->sizes.size(), 1u);
  EXPECT_EQ(form->values, (std::vector<std::vector<std::int64_t>>{{12, 30, 900}}));
  EXPECT_EQ(form->sizes[0].lower(), 12);
  EXPECT_EQ(form->sizes[0].upper(), 900);
  EXPECT_EQ(form->sizes[0].divisor(), 6);
  EXPECT_EQ(form->region.axes[0].extent, form->sizes[0]);
  EXPECT_EQ(with_sizes(form->sizes[0] * Expr(2), form->sizes, form->values, 1), Expr(60));
}

TEST(EqualForms, SizesOfMemoryAreProductsOfThoseOfAxes) {
  for (const std::int64_t axis : {0, 1}) {
    const std::vector<Region> regions{sum_of(7, 300, axis), sum_of(9, 41, axis),
                                      sum_of(50, 12, axis)};
    const auto form = common_of(regions);
    ASSERT_TRUE(form) << axis;
    EXPECT_EQ(form->sizes.size(), 2u) << print(form->region);
    EXPECT_EQ(form->region.operands[0].shape[0], form->sizes[0] * form->sizes[1]);
    for (const Region& region : regions)
      EXPECT_EQ(form_hash(region), form_hash(regions[0]));
  }
}

TEST(EqualForms, EqualRegionsNeedNoSymbol) {
  const auto form = common_of({sum_of(5, 6, 1), sum_of(5, 6, 1)});
  ASSERT_TRUE(form);
  EXPECT_TRUE(form->sizes.empty());
  EXPECT_EQ(hash_of(form->region), hash_of(sum_of(5, 6, 1)));
}

TEST(EqualForms, AlignmentIsThatOfAll) {
  std::vector<Region> regions{unary_of(Op::Cos, {12}), unary_of(Op::Cos, {20})};
  regions[0].operands[0].alignment = 32;
  regions[1].operands[0].alignment = 4;
  EXPECT_EQ(form_hash(regions[0]), form_hash(regions[1]));
  EXPECT_EQ(common_of(regions)->region.operands[0].alignment, 4);
}

TEST(EqualForms, WhatDiffersInMoreThanNumbersHasNone) {
  const Region cosine = unary_of(Op::Cos, {12});
  const auto scaled = [](double by) {
    return region_of([by](Graph& g) {
      const NodeId x = g.input("x", DType::F32, {12});
      return g.binary(Op::Mul, x, g.broadcast(g.constant(DType::F32, by), {12}));
    });
  };
  const auto refused = [](const Region& a, const Region& b) {
    EXPECT_NE(form_hash(a), form_hash(b));
    EXPECT_FALSE(common_of({a, b}));
  };
  refused(cosine, unary_of(Op::Exp, {12}));
  refused(cosine, unary_of(Op::Cos, {1})); // no axis
  refused(scaled(2), scaled(3));
  refused(sum_of(7, 9, 0), sum_of(7, 9, 1));
  refused(cosine,
          region_of([](Graph& g) { return g.unary(Op::Cos, g.input("x", DType::F64, {12})); }));
  refused(cosine, unary_of(Op::Cos, {Expr::symbol("n", 1, 100)}));
}

} // namespace
} // namespace egret::kernel
