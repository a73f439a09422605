// Networks and lists in registers that sort rows on a GPU, and select the first few of them, agree
// with the reference: for any length, key type, order of memory, number of lanes and of slices,
// with equal keys and with the largest ones.
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;
using kernel::Schedule;
using kernel::Target;
using testing::Rng;

constexpr std::int64_t kNetworkWay = 4, kListsWay = 5;
const std::vector<DType> kNetworkKeys = {DType::U8,  DType::I8,  DType::U16, DType::I16,
                                         DType::U32, DType::I32, DType::U64, DType::I64};

const kernel::Generator& network_generator(const Target& target) {
  return testing::generator_named("gpu_sort", target);
}

/// Positions of the first `count` along an axis of keys of which many may be equal, or the largest.
Graph positions(Rng& rng, const Shape& shape, std::int64_t axis, std::int64_t count) {
  Graph g;
  const DType type = rng.pick(kNetworkKeys);
  NodeId key = g.input("x", type, shape);
  const auto with = [&](Op op, double v) {
    return g.binary(op, key, g.broadcast(g.constant(type, v), shape));
  };
  switch (rng.below(4)) {
  case 0:
    key = with(Op::And, 1.0);
    break;
  case 1: // all bits
    key = g.binary(Op::Or, with(Op::And, 1.0),
                   g.broadcast(g.constant(Scalar::from_bits(type, ~std::uint64_t{1})), shape));
    break;
  case 2: // bits up to the top
    key = with(Op::Mul, size_of(type) > 2 ? 2654435761.0 : 101.0);
    break;
  default:
    break;
  }
  if (rng.chance(0.2))
    key = g.flip(key, {axis});
  g.outputs = {g.argsort(key, axis, count)};
  return g;
}

/// Rows of `length` elements, beside each other in memory or not, among others.
Graph rows_of(Rng& rng, std::int64_t length, std::int64_t count) {
  const std::int64_t rows = 1 + rng.below(40), outer = 1 + rng.below(3);
  switch (rng.below(3)) {
  case 0:
    return positions(rng, {rows, length}, 1, count);
  case 1:
    return positions(rng, {outer, length, rows}, 1, count);
  default:
    return positions(rng, {length}, 0, count);
  }
}

std::int64_t power(std::int64_t n) {
  std::int64_t p = 1;
  while (p < n)
    p *= 2;
  return p;
}

/// Checks a schedule of each of the graph's sorts; gives how many there were.
int check_way(const Graph& g, std::uint64_t seed,
              const std::map<std::string, std::int64_t>& knobs) {
  const Target target = testing::test_gpu();
  const kernel::Generator& generator = network_generator(target);
  const auto inputs = testing::random_inputs(g, seed, {.special = false});
  int checked = 0;
  for (testing::RegionCase& c : testing::region_cases(g, inputs)) {
    if (classify(c.region) != kernel::Form::Sort)
      continue;
    testing::take_over_operands(c.region);
    const testing::RegionCase aligned = testing::aligned_for(c, target);
    Schedule s;
    s.generator = generator.name();
    s.knobs = knobs;
    for (const int blocks : {1, 3}) {
      const std::string wrong =
          testing::check_schedule(aligned, generator, s, target, {.workers = blocks}, true);
      EXPECT_TRUE(wrong.empty()) << blocks << " blocks: " << wrong;
    }
    ++checked;
  }
  return checked;
}

TEST(SortNetworks, OfAThreadTakeRowsOfAnyLength) {
  Rng rng(1);
  for (std::int64_t n = 2; n <= 36; ++n) {
    SCOPED_TRACE(fmt::format("length {}", n));
    const std::int64_t count = rng.chance(0.5) ? n : 1 + rng.below(n);
    EXPECT_EQ(1, check_way(rows_of(rng, n, count), std::uint64_t(n),
                           {{"way", kNetworkWay},
                            {"threads", rng.chance(0.5) ? 32 : 64},
                            {"lanes", 1},
                            {"each", n}}));
    if (HasFailure())
      return;
  }
}

TEST(SortNetworks, OfSeveralLanesTakeRowsOfAnyLength) {
  Rng rng(2);
  for (int i = 0; i < 60; ++i) {
    const std::int64_t lanes = std::int64_t{1} << (1 + rng.below(5)),
                       n = 2 + rng.below(8 * lanes - 1);
    SCOPED_TRACE(fmt::format("{} elements in {} lanes", n, lanes));
    const std::int64_t count = rng.chance(0.5) ? n : 1 + rng.below(n);
    EXPECT_EQ(1, check_way(rows_of(rng, n, count), std::uint64_t(i),
                           {{"way", kNetworkWay},
                            {"threads", rng.chance(0.5) ? 32 : 64},
                            {"lanes", lanes},
                            {"each", power((n + lanes - 1) / lanes)}}));
    if (HasFailure())
      return;
  }
}

TEST(SortNetworks, ListsHaveTheFirstFew) {
  Rng rng(3);
  for (int i = 0; i < 60; ++i) {
    const std::int64_t n = 2 + rng.below(250);
    const std::int64_t count = 1 + rng.below(std::min<std::int64_t>(n, rng.chance(0.2) ? 16 : 5));
    const bool block = rng.chance(0.4);
    const std::int64_t threads = 32 * (1 + rng.below(3));
    const std::int64_t lanes = block ? threads : std::int64_t{1} << rng.below(6);
    const std::int64_t slices = block ? 1 + rng.below(std::min<std::int64_t>(n, 4)) : 1;
    SCOPED_TRACE(fmt::format("{} of {} in {} lanes, {} slices", count, n, lanes, slices));
    EXPECT_EQ(1, check_way(rows_of(rng, n, count), std::uint64_t(i),
                           {{"way", kListsWay},
                            {"threads", threads},
                            {"lanes", lanes},
                            {"each", 1 + rng.below(9)},
                            {"slices", slices}}));
    if (HasFailure())
      return;
  }
}

TEST(SortNetworks, WhatDoesNotFitIsRefused) {
  const Target target = testing::test_gpu();
  const kernel::Generator& generator = network_generator(target);
  Graph g;
  g.outputs = {g.argsort(g.input("x", DType::U32, {9, 300}), 1, 100)};
  const kernel::Region region = testing::regions_of(g, target).at(0);
  const struct {
    std::map<std::string, std::int64_t> knobs;
    const char* why;
  } cases[] = {
      {{{"way", 4}, {"lanes", 3}, {"each", 100}}, "power of two"},
      {{{"way", 4}, {"lanes", 4}, {"each", 65}}, "power of two"},
      {{{"way", 4}, {"lanes", 4}, {"each", 16}}, "longer"},
      {{{"way", 4}, {"lanes", 1}, {"each", 128}}, "not those of its row"},
      {{{"way", 4}, {"lanes", 4}, {"each", 128}}, "registers"},
      {{{"way", 4}, {"lanes", 8}, {"each", 64}}, "registers"},
      {{{"way", 5}, {"lanes", 4}, {"each", 8}}, "first few"},
      {{{"way", 1}, {"each", 40}}, "32 elements"},
  };
  for (const auto& c : cases) {
    Schedule s;
    s.generator = generator.name();
    s.knobs = c.knobs;
    const kernel::Lowered lowered = generator.lower(region, s, target);
    EXPECT_FALSE(lowered.ok) << c.why;
    EXPECT_NE(lowered.reason.find(c.why), std::string::npos) << lowered.reason;
  }
}

/// Short rows go through networks, the first few of any rows through lists; blocks share long rows.
TEST(SortNetworks, AreChosenByTheRows) {
  Target target = testing::test_gpu();
  target.workers = 132;
  target.block_shared_bytes = 227 << 10;
  const struct {
    DType type;
    Shape shape;
    std::int64_t axis, count, way, lanes, blocks;
  } cases[] = {{DType::U64, {7, 30310, 4}, 2, 4, kNetworkWay, 1, 132},
               {DType::U64, {512, 8, 16}, 1, 8, kNetworkWay, 0, 64},
               {DType::U32, {2000, 500}, 1, 500, kNetworkWay, 32, 132},
               {DType::I32, {3849, 33, 32}, 1, 4, kListsWay, 1, 132},
               {DType::U32, {3984}, 0, 1, kListsWay, 0, 1},
               {DType::U32, {746304}, 0, 11, kListsWay, 0, 64}};
  for (const auto& c : cases) {
    Graph g;
    g.outputs = {g.argsort(g.input("x", c.type, c.shape), c.axis, c.count)};
    const kernel::Chosen chosen =
        kernel::lower_greedily(testing::regions_of(g, target).at(0), target);
    EXPECT_EQ(chosen.schedule.knob("way", -1), c.way) << to_string(chosen.schedule);
    if (c.lanes > 0) {
      EXPECT_EQ(chosen.schedule.knob("lanes", -1), c.lanes) << to_string(chosen.schedule);
    }
    EXPECT_GE(chosen.program.launch.workers.value(), c.blocks) << to_string(chosen.schedule);
  }
}

} // namespace
} // namespace egret
