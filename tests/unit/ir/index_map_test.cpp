#include "egret/error.h"
#include "egret/index_map.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using Axes = std::vector<std::int64_t>;

class IndexMapTest : public testing::Test {
protected:
  Expr b = Expr::symbol("B", 1, 1 << 16), t = Expr::symbol("T", 1, 1 << 16);
  Expr maybe = Expr::symbol("maybe", 0, 100);
};

TEST_F(IndexMapTest, ReshapesOfUnitDimsSplitsAndMergesAreSimple) {
  EXPECT_EQ(IndexMap::reshape({2, 3}, {2, 1, 3}).str(), "(d0,d1,d2)[2,1,3] -> (d0,d2)");
  EXPECT_EQ(IndexMap::reshape({6, 4}, {2, 3, 4}).str(), "(d0,d1,d2)[2,3,4] -> (3*d0+d1,d2)");
  EXPECT_EQ(IndexMap::reshape({2, 3, 4}, {6, 4}).str(), "(d0,d1)[6,4] -> (d0//3,d0%3,d1)");
  EXPECT_EQ(IndexMap::reshape({b, t, 128}, {b, t, 4, 32}).str(),
            "(d0,d1,d2,d3)[B,T,4,32] -> (d0,d1,32*d2+d3)");
  EXPECT_EQ(IndexMap::reshape({b, t, 128}, {b * t, 128}).str(),
            "(d0,d1)[B*T,128] -> (d0//T,d0%T,d1)");
  EXPECT_EQ(IndexMap::reshape({b * t, 128}, {b, t, 128}).str(),
            "(d0,d1,d2)[B,T,128] -> (T*d0+d1,d2)");
  EXPECT_EQ(IndexMap::reshape({1, 1}, {}).str(), "()[] -> (0,0)");
  EXPECT_EQ(IndexMap::reshape({4, 6}, {3, 8}).str(), "(d0,d1)[3,8] -> ((8*d0+d1)//6,(8*d0+d1)%6)");
}

TEST_F(IndexMapTest, ReshapeAndBackIsTheIdentity) {
  const std::vector<std::pair<Shape, Shape>> cases{
      {{2, 3, 4}, {6, 4}},      {{2, 3, 4}, {4, 6}},          {{b, t, 128}, {b * t, 128}},
      {{24}, {2, 3, 4}},        {{b, t, 128}, {b * t * 128}}, {{4, 6}, {3, 8}},
      {{maybe, 4}, {maybe * 4}}};
  for (const auto& [from, to] : cases) {
    const IndexMap map = compose(IndexMap::reshape(to, from), IndexMap::reshape(from, to));
    EXPECT_TRUE(map.is_identity()) << map.str();
  }
}

TEST_F(IndexMapTest, AttentionHeadsStayPlain) {
  // [B*T, 128] seen as [B, 4, T, 32].
  const IndexMap split = IndexMap::reshape({b * t, 128}, {b, t, 4, 32});
  const IndexMap heads = IndexMap::permute({b, t, 4, 32}, Axes{0, 2, 1, 3});
  EXPECT_EQ(compose(heads, split).str(), "(d0,d1,d2,d3)[B,4,T,32] -> (T*d0+d2,32*d1+d3)");
  const IndexMap flat = compose(compose(heads, split), IndexMap::row_major({b * t, 128}));
  EXPECT_EQ(flat.str(), "(d0,d1,d2,d3)[B,4,T,32] -> (128*T*d0+32*d1+128*d2+d3)");
}

TEST_F(IndexMapTest, PadThenShrinkBackLeavesNoHole) {
  const Scalar zero = Scalar::of(DType::F32, 0.0);
  const std::vector<Expr> one{1}, two{2}, none{0};
  for (const Expr& n : {Expr(5), b}) {
    const IndexMap pad = IndexMap::pad({n}, one, two, zero);
    const IndexMap back = compose(IndexMap::shrink({n + 3}, one, std::vector<Expr>{n + 1}), pad);
    EXPECT_TRUE(back.is_identity()) << back.str();
  }
  EXPECT_EQ(IndexMap::pad({5}, one, none, zero).str(), "(d0)[6] -> (d0-1) where 1<=d0<6 else 0");
  EXPECT_TRUE(IndexMap::pad({b}, none, none, zero).is_identity());
}

TEST_F(IndexMapTest, HolesWithOneFillMergeAndOthersKeepTheirOrder) {
  const Scalar zero = Scalar::of(DType::F32, 0.0), one = Scalar::of(DType::F32, 1.0);
  const std::vector<Expr> ones{1};
  const IndexMap inner = IndexMap::pad({4}, ones, ones, zero);
  EXPECT_EQ(compose(IndexMap::pad({6}, ones, ones, zero), inner).str(),
            "(d0)[8] -> (d0-2) where 2<=d0<6 else 0");
  EXPECT_EQ(compose(IndexMap::pad({6}, ones, ones, one), inner).str(),
            "(d0)[8] -> (d0-2) where 1<=d0<7 else 1; where 2<=d0<6 else 0");
}

TEST_F(IndexMapTest, WhatIsAllHoleReadsNothing) {
  const Scalar one = Scalar::of(DType::F32, 1.0);
  const IndexMap pad = IndexMap::pad({4}, std::vector<Expr>{3}, std::vector<Expr>{0}, one);
  const IndexMap map =
      compose(IndexMap::shrink({7}, std::vector<Expr>{0}, std::vector<Expr>{3}), pad);
  EXPECT_EQ(map.str(), "(d0)[3] -> (0) where 1<=0<1 else 1");
}

TEST_F(IndexMapTest, PaddingSeenThroughAReshapeStaysACondition) {
  const Scalar zero = Scalar::of(DType::F32, 0.0);
  const IndexMap pad =
      IndexMap::pad({3, 8}, std::vector<Expr>{1, 0}, std::vector<Expr>{1, 0}, zero);
  EXPECT_EQ(compose(IndexMap::reshape({5, 8}, {40}), pad).str(),
            "(d0)[40] -> (d0//8-1,d0%8) where 8<=d0<32 else 0");
  EXPECT_EQ(compose(IndexMap::reshape({5, 8}, {5, 4, 2}), pad).str(),
            "(d0,d1,d2)[5,4,2] -> (d0-1,2*d1+d2) where 1<=d0<4 else 0");
}

TEST_F(IndexMapTest, EmptyBoxesAreHandled) {
  const std::vector<Expr> zero{0}, one{1};
  EXPECT_EQ(IndexMap::reshape({0, 3}, {3, 0, 2}).coords.size(), 2u);
  EXPECT_EQ(IndexMap::reshape({0}, {0}).dims, Shape{0});
  EXPECT_EQ(IndexMap::flip({0, 2}, Axes{0, 1}).dims, (Shape{0, 2}));
  EXPECT_EQ(IndexMap::shrink({4}, one, one).dims, Shape{0});
  EXPECT_TRUE(inverse(IndexMap::reshape({0, 3}, {0}), {0, 3}).has_value());
  const IndexMap all_hole = IndexMap::pad({0}, one, one, Scalar::of(DType::F32, 0.0));
  EXPECT_EQ(all_hole.dims, Shape{2});
  EXPECT_EQ(all_hole.holes.size(), 1u);
  EXPECT_EQ(IndexMap::reshape({maybe, 2}, {maybe * 2}).coords[0].str(), "d0//2");
}

TEST_F(IndexMapTest, InversesOfSymbolicMovements) {
  const IndexMap split = IndexMap::reshape({b * t, 128}, {b, t, 4, 32});
  const IndexMap heads = compose(IndexMap::permute({b, t, 4, 32}, Axes{0, 2, 1, 3}), split);
  const auto back = inverse(heads, {b * t, 128});
  ASSERT_TRUE(back);
  EXPECT_EQ(back->str(), "(d0,d1)[B*T,128] -> (d0//T,d1//32,d0%T,d1%32)");
  EXPECT_TRUE(compose(*back, heads).is_identity());
  const auto flat = inverse(IndexMap::row_major({b, 3, t}), {3 * b * t});
  ASSERT_TRUE(flat);
  EXPECT_EQ(flat->str(), "(d0)[3*B*T] -> (d0//(3*T),d0//T%3,d0%T)");
  EXPECT_FALSE(inverse(IndexMap::expand({1}, {4}), {1}));
}

TEST_F(IndexMapTest, ThousandsOfViewsCompose) {
  for (int round = 0; round < 500; ++round) {
    const Expr width(64 + round % 8);
    const IndexMap split = IndexMap::reshape({b * t, 4 * width}, {b, t, 4, width});
    const IndexMap heads = compose(IndexMap::permute({b, t, 4, width}, Axes{0, 2, 1, 3}), split);
    ASSERT_TRUE(compose(heads, IndexMap::row_major({b * t, 4 * width})).is_total());
  }
}

} // namespace
} // namespace egret
