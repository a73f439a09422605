// Products whose factors are read by digits of an axis, as heads that were joined are.
#include "backend/cuda/target.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret::compiler {
namespace {

using ir::Graph;
using ir::NodeId;

/// What a product of [rows, heads * width] with [columns, heads * width] is made of.
struct Joined {
  std::int64_t batch = 2, rows = 6, heads = 4, width = 16, columns = 8;
  DType dtype = DType::F32;
  bool gradient = false; ///< of the weights: the joined axis is one of the result's
  bool padded = false;   ///< two heads of zeros beside the others
};

Graph graph_of(const Joined& c) {
  Graph g;
  const NodeId heads = g.input("heads", c.dtype, {c.batch, c.heads, c.rows, c.width});
  NodeId moved = g.permute(heads, {0, 2, 1, 3}); // [batch, rows, heads, width]
  std::int64_t all = c.heads;
  if (c.padded) {
    moved = g.pad(moved, {0, 0, 1, 0}, {0, 0, 1, 0}, Scalar::of(c.dtype, 0.0));
    all += 2;
  }
  const std::int64_t joined = all * c.width, rows = c.batch * c.rows;
  const auto wide = [&](NodeId id) { return c.dtype == DType::F32 ? id : g.cast(id, DType::F32); };
  const NodeId x = wide(g.reshape(moved, {rows, joined}));
  if (c.gradient) {
    const Shape box{rows, c.columns, joined};
    const NodeId dy = wide(g.input("dy", c.dtype, {rows, c.columns}));
    g.outputs = {g.reduce(Op::ReduceSum,
                          g.binary(Op::Mul, g.expand(g.reshape(dy, {rows, c.columns, 1}), box),
                                   g.expand(g.reshape(x, {rows, 1, joined}), box)),
                          {0})};
    return g;
  }
  const Shape box{rows, c.columns, joined};
  const NodeId w = wide(g.input("w", c.dtype, {c.columns, joined}));
  g.outputs = {g.reduce(Op::ReduceSum,
                        g.binary(Op::Mul, g.expand(g.reshape(x, {rows, 1, joined}), box),
                                 g.expand(g.reshape(w, {1, c.columns, joined}), box)),
                        {2})};
  return g;
}

bool has_digits(const kernel::Region& region) {
  const std::string text = kernel::print(region);
  return text.find(" // ") != std::string::npos || text.find(" % ") != std::string::npos;
}

TEST(Canonical, AJoinedAxisOfAProductIsTwoAgain) {
  for (const DType dtype : {DType::F32, DType::BF16})
    for (const bool gradient : {false, true}) {
      const Graph g = graph_of({.dtype = dtype, .gradient = gradient});
      const auto regions = testing::regions_of(g, backend::cuda::known_target(90));
      ASSERT_EQ(regions.size(), 1u);
      EXPECT_FALSE(has_digits(regions[0])) << kernel::print(regions[0]);
      const auto extents = [&](std::int64_t n) {
        return std::ranges::count_if(regions[0].axes,
                                     [&](const auto& axis) { return axis.extent == Expr(n); });
      };
      EXPECT_EQ(extents(64), 0);
      EXPECT_EQ(extents(16), 1);
    }
}

TEST(Canonical, AJoinedAxisWithHolesStaysOne) {
  const Graph g = graph_of({.padded = true});
  const auto regions = testing::regions_of(g, backend::cuda::known_target(90));
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_TRUE(has_digits(regions[0])) << kernel::print(regions[0]);
}

TEST(Canonical, JoinedAxesKeepTheirValues) {
  for (const bool gradient : {false, true})
    for (const bool padded : {false, true})
      for (const DType dtype : {DType::F32, DType::BF16}) {
        const Graph g = graph_of({.dtype = dtype, .gradient = gradient, .padded = padded});
        const auto inputs = testing::random_inputs(g, 3, {.special = false, .range = 1});
        for (const kernel::Target& target : {testing::test_targets()[0], testing::test_gpu()})
          for (const testing::RegionCase& c : testing::region_cases(g, inputs, target))
            EXPECT_EQ(testing::check_generators(c, target, {}, 6), "");
      }
}

} // namespace
} // namespace egret::compiler
