#include "kernel/integer_range.h"

#include "backend/reference/reference.h"
#include "compiler/compile.h"
#include "kernel/families.h"
#include "support/contraction_regions.h"
#include "support/cpu_levels.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;
using testing::region_of;

using Range = std::optional<std::pair<std::int64_t, std::int64_t>>;

/// The range of what `make` makes of inputs a (i8), b (u8), c (i32) and x (f32).
Range range(const std::function<NodeId(Graph&, NodeId a, NodeId b, NodeId c, NodeId x)>& make) {
  const auto region = region_of([&](Graph& g) {
    const auto of = [&](const char* name, DType type) { return g.input(name, type, {Expr(8)}); };
    const NodeId a = of("a", DType::I8), b = of("b", DType::U8), c = of("c", DType::I32),
                 x = of("x", DType::F32);
    return std::vector{make(g, a, b, c, x)};
  });
  const int last = int(region.stages.size()) - 1;
  if (const auto found = kernel::range_of(region, last, region.stages.back().yields[0]))
    return std::pair{found->least, found->largest};
  return std::nullopt;
}

NodeId number(Graph& g, DType type, double value) {
  return g.expand(g.reshape(g.constant(type, value), {Expr(1)}), {Expr(8)});
}

NodeId wide(Graph& g, NodeId a) {
  return g.cast(a, DType::I32);
}

TEST(IntegerRanges, FollowFromDtypesConstantsAndBounds) {
  EXPECT_EQ(range([](Graph& g, NodeId a, NodeId, NodeId, NodeId) { return wide(g, a); }),
            (Range{{-128, 127}}));
  EXPECT_EQ(range([](Graph& g, NodeId, NodeId b, NodeId, NodeId) {
              return g.binary(Op::Add, wide(g, b), number(g, DType::I32, -127));
            }),
            (Range{{-127, 128}}));
  EXPECT_EQ(range([](Graph& g, NodeId a, NodeId b, NodeId, NodeId) {
              return g.binary(Op::Mul, wide(g, a), wide(g, b));
            }),
            (Range{{-128 * 255, 127 * 255}}));
  EXPECT_EQ(range([](Graph& g, NodeId, NodeId, NodeId c, NodeId) {
              return g.binary(Op::And, c, number(g, DType::I32, 15));
            }),
            (Range{{0, 15}}));
  EXPECT_EQ(range([](Graph& g, NodeId, NodeId b, NodeId, NodeId) {
              return wide(g, g.binary(Op::Shr, b, number(g, DType::U8, 4)));
            }),
            (Range{{0, 15}}));
  // A float between two bounds, NaN included, made an integer.
  const auto clamped = range([](Graph& g, NodeId, NodeId, NodeId, NodeId x) {
    const NodeId minus = number(g, DType::F32, -1);
    const NodeId low = g.binary(Op::Max, x, number(g, DType::F32, -100));
    const NodeId high = g.binary(Op::Max, g.binary(Op::Mul, low, minus), number(g, DType::F32, -7));
    return wide(g, g.binary(Op::Mul, high, minus));
  });
  ASSERT_TRUE(clamped);
  EXPECT_GE(clamped->first, -101);
  EXPECT_LE(clamped->first, -100);
  EXPECT_GE(clamped->second, 7);
  EXPECT_LE(clamped->second, 8);
}

TEST(IntegerRanges, AreUnknownWhereValuesMayWrap) {
  EXPECT_EQ(range([](Graph& g, NodeId, NodeId, NodeId c, NodeId) {
              return g.binary(Op::Add, c, number(g, DType::I32, 1));
            }),
            std::nullopt);
  EXPECT_EQ(range([](Graph& g, NodeId, NodeId, NodeId, NodeId x) { return wide(g, x); }),
            std::nullopt);
  EXPECT_EQ(range([](Graph&, NodeId, NodeId, NodeId, NodeId x) { return x; }), std::nullopt);
  // i8 + i8 wraps within i8.
  EXPECT_EQ(range([](Graph& g, NodeId a, NodeId, NodeId, NodeId) {
              return wide(g, g.binary(Op::Add, a, a));
            }),
            (Range{{-128, 127}}));
}

/// A random elementwise expression of the ops that ranges follow.
NodeId random_value(Graph& g, testing::Rng& random, const std::vector<NodeId>& inputs, int ops) {
  std::vector<NodeId> values = inputs;
  for (int i = 0; i < ops; ++i) {
    const NodeId a = random.pick(values);
    const DType type = g[a].dtype;
    const auto other = [&] {
      if (random.chance(0.4)) {
        static const std::vector<double> usual{-32768, -129, -128, -7, -1, 0, 1, 4, 15, 127, 255};
        return number(g, type, random.pick(usual));
      }
      return g.cast(random.pick(values), type);
    };
    switch (random.below(type == DType::Bool ? 1 : is_float(type) ? 6 : 8)) {
    case 0:
      values.push_back(g.cast(
          a, random.pick(std::vector{DType::I32, DType::I8, DType::I16, DType::F32, DType::F16})));
      break;
    case 1:
      values.push_back(g.binary(Op::Add, a, other()));
      break;
    case 2:
      values.push_back(g.binary(Op::Mul, a, other()));
      break;
    case 3:
      values.push_back(g.binary(Op::Max, a, other()));
      break;
    case 4: {
      const NodeId b = other();
      values.push_back(g.select(g.binary(Op::Lt, a, b), a, b));
      break;
    }
    case 5:
      values.push_back(is_float(type) ? g.unary(random.chance(0.5) ? Op::Floor : Op::Trunc, a)
                                      : g.binary(Op::Xor, a, other()));
      break;
    case 6:
      values.push_back(g.binary(Op::And, a, other()));
      break;
    default:
      values.push_back(g.binary(Op::Shr, a, number(g, type, double(random.below(7)))));
    }
  }
  return g.cast(values.back(), DType::I32);
}

TEST(IntegerRanges, HoldForRandomValues) {
  using backend::reference::HostArray;
  const double big = 3e38, nan = std::numeric_limits<double>::quiet_NaN(),
               infinite = std::numeric_limits<double>::infinity();
  const std::vector<HostArray> inputs{
      HostArray(DType::I8, {8}, {-128, -127, -1, 0, 1, 5, 126, 127}),
      HostArray(DType::U8, {8}, {255, 254, 128, 127, 1, 0, 17, 255}),
      HostArray(DType::I32, {8}, {-2147483648.0, 2147483647, 0, -1, 70000, 32767, -32768, 3}),
      HostArray(DType::F32, {8}, {nan, infinite, -infinite, big, -big, 0.5, -7.5, 70000})};
  int known = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    testing::Rng random(seed);
    Graph graph;
    const auto region = region_of([&](Graph& g) {
      std::vector<NodeId> of;
      for (const auto& [name, type] : {std::pair{"a", DType::I8}, std::pair{"b", DType::U8},
                                       std::pair{"c", DType::I32}, std::pair{"x", DType::F32}})
        of.push_back(g.input(name, type, {Expr(8)}));
      g.outputs = {random_value(g, random, of, 1 + int(random.below(6)))};
      graph = g;
      return g.outputs;
    });
    const int last = int(region.stages.size()) - 1;
    const auto range = kernel::range_of(region, last, region.stages.back().yields[0]);
    if (!range)
      continue;
    ++known;
    for (const double value : backend::reference::execute(graph, inputs)[0].doubles()) {
      EXPECT_GE(value, double(range->least)) << seed;
      EXPECT_LE(value, double(range->largest)) << seed;
    }
  }
  EXPECT_GE(known, 100);
}

/// A product of what is made of u8 and i8 on the way: codes less a zero point, bools.
TEST(IntegerRanges, LetComputedFactorsBeMultipliedInPairs) {
  const auto product = [](DType left, DType right, double zero) {
    const auto e = testing::sizes("mk", "nk", "mn", 19, 24, 34);
    return region_of([&](Graph& g) {
      const auto factor = [&](const char* name, DType type, const std::string& letters) {
        const NodeId v = g.cast(testing::input(g, name, letters, e, type), DType::I32);
        const NodeId point = g.expand(g.reshape(g.constant(DType::I32, -zero), {Expr(1), Expr(1)}),
                                      e.shape_of(letters));
        return zero == 0 ? v : g.binary(Op::Add, v, point);
      };
      return std::vector{
          testing::einsum(g, factor("a", left, e.left), factor("b", right, e.right), e)};
    });
  };
  const auto unit = [](const kernel::Region& region, const std::string& level) {
    return kernel::contraction_generator().space(region, testing::cpu_at(level).target())[0].mma;
  };
  for (const std::string level : testing::cpu_levels()) {
    EXPECT_EQ(unit(product(DType::U8, DType::I8, 128), level), "i16_pairs") << level;
    EXPECT_EQ(unit(product(DType::Bool, DType::Bool, 0), level), "i16_pairs") << level;
    EXPECT_EQ(unit(product(DType::U8, DType::U8, 40000), level), "") << level;
  }
}

} // namespace
} // namespace egret
