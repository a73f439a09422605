// Sorts of random shapes, axes, dtypes and counts, with maps before them: rows in a tile, rows of
// many tiles, slices, networks and selections agree with the reference on both targets and have the
// same bits for any number of workers.
#include "support/cpu_levels.h"
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

const kernel::Generator& sort_generator(const Target& target) {
  return testing::generator_named(target.is_gpu() ? "gpu_sort" : "sort", target);
}

constexpr DType kKeys[] = {DType::U8,  DType::I8,  DType::U16, DType::I16,
                           DType::U32, DType::I32, DType::U64, DType::I64};

/// Positions of the first few elements along an axis, often with many ties.
Graph sort_graph(Rng& rng, std::int64_t longest) {
  Graph g;
  const DType type = rng.pick(std::vector<DType>(std::begin(kKeys), std::end(kKeys)));
  const auto rank = std::size_t(1 + rng.below(3));
  const auto axis = std::size_t(rng.below(std::int64_t(rank)));
  Shape shape;
  for (std::size_t i = 0; i < rank; ++i)
    shape.push_back(i == axis ? 1 + rng.below(longest) : 1 + rng.below(4));
  NodeId key = g.input("x", type, shape);
  if (rng.chance(0.5))
    key = g.binary(Op::And, key, g.broadcast(g.constant(type, rng.chance(0.5) ? 3.0 : 1.0), shape));
  if (rng.chance(0.3))
    key = g.flip(key, {std::int64_t(axis)});
  const std::int64_t n = shape[axis].value();
  const std::int64_t count = rng.chance(0.5) ? n : rng.below(std::min<std::int64_t>(n, 7) + 1);
  g.outputs = {g.argsort(key, std::int64_t(axis), count)};
  return g;
}

Graph order(DType type, const Shape& shape, std::int64_t count) {
  Graph g;
  const auto axis = std::int64_t(shape.size()) - 1;
  g.outputs = {g.argsort(g.input("x", type, shape), axis, count)};
  return g;
}

Schedule
with_sort_schedule(const kernel::Generator& generator,
                   std::initializer_list<std::pair<const std::string, std::int64_t>> knobs) {
  Schedule s;
  s.generator = generator.name();
  s.knobs = knobs;
  return s;
}

/// Small tiles and digits of any size, which tell whether borders are right.
std::vector<Schedule> sort_schedules(const testing::RegionCase& c, const Target& target, Rng& rng,
                                     std::size_t most) {
  const kernel::Generator& generator = sort_generator(target);
  std::vector<Schedule> all = generator.space(c.region, target);
  if (all.size() > most)
    all.resize(most);
  std::vector<Schedule> more;
  const std::int64_t bits = 2 + rng.below(4), each = 1 + 2 * rng.below(2);
  for (const std::int64_t way : {0, 1, 2, 3, 4})
    more.push_back(target.is_gpu()
                       ? with_sort_schedule(generator, {{"way", way},
                                                        {"threads", rng.chance(0.5) ? 32 : 64},
                                                        {"each", each},
                                                        {"bits", bits}})
                       : with_sort_schedule(generator, {{"way", way},
                                                        {"bits", bits + rng.below(8)},
                                                        {"block", rng.chance(0.5) ? 4 : 8}}));
  for (const Schedule& s : more)
    if (generator.lower(c.region, s, target).ok)
      all.push_back(s);
  return all;
}

void check_sort(const testing::RegionCase& c, const Target& target, Rng& rng, std::size_t most,
                backend::Device* device = nullptr) {
  const kernel::Generator& generator = sort_generator(target);
  for (const Schedule& s : sort_schedules(c, target, rng, most))
    for (const int workers : {1, 3}) {
      const std::string wrong =
          testing::check_schedule(c, generator, s, target, {.device = device, .workers = workers},
                                  /*must_lower=*/true);
      ASSERT_TRUE(wrong.empty()) << workers << " workers: " << wrong;
    }
}

bool sorts(const testing::RegionCase& c) {
  return classify(c.region) == kernel::Form::Sort;
}

void check_graph(const Graph& g, const Target& target, Rng& rng, std::uint64_t seed,
                 std::size_t most, backend::Device* device = nullptr) {
  const auto inputs = testing::random_inputs(g, seed, {.special = false});
  for (testing::RegionCase& c : testing::region_cases(g, inputs)) {
    if (!sorts(c))
      continue;
    testing::take_over_operands(c.region);
    check_sort(target.is_gpu() ? testing::aligned_for(c, target) : c, target, rng, most, device);
    if (::testing::Test::HasFatalFailure())
      return;
  }
}

void check_random_sorts(const Target& target, int graphs, std::int64_t longest, std::size_t most,
                        backend::Device* device = nullptr) {
  for (int seed = 0; seed < graphs; ++seed) {
    Rng rng(std::uint64_t(seed) * 7 + 11);
    const Graph g = sort_graph(rng, longest);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    check_graph(g, target, rng, std::uint64_t(seed), most, device);
    if (::testing::Test::HasFatalFailure())
      return;
  }
}

TEST(Sorts, OfACpuAgreeWithTheReference) {
  for (const Target& target : testing::test_targets())
    check_random_sorts(target, 60, 90, 100);
}

/// Each length of a short row, in rows beside each other and in rows of strided elements.
TEST(Sorts, OfACpuHaveAnyLength) {
  Rng rng(2);
  const std::vector<DType> keys(std::begin(kKeys), std::end(kKeys));
  for (std::int64_t n = 0; n <= 70; ++n) {
    SCOPED_TRACE(fmt::format("length {}", n));
    const std::int64_t rows = 1 + rng.below(9), count = rng.chance(0.5) ? n : rng.below(n + 1);
    Graph g;
    const bool strided = rng.chance(0.5);
    const Shape shape = strided ? Shape{n, rows} : Shape{rows, n};
    g.outputs = {g.argsort(g.input("x", rng.pick(keys), shape), strided ? 0 : 1, count)};
    for (const Target& target : testing::test_targets())
      check_graph(g, target, rng, std::uint64_t(n), 2);
    if (::testing::Test::HasFatalFailure())
      return;
  }
}

/// Keys over the whole range of their type, equal ones, and ones that are in order already or the
/// other way round, where every element is better than those before it.
TEST(Sorts, OfACpuTakeAnyOrderOfKeys) {
  Rng rng(3);
  for (const DType type : {DType::U16, DType::U32, DType::U64})
    for (const int kind : {0, 1, 2, 3})
      for (const std::int64_t n : {40, 1100}) {
        SCOPED_TRACE(fmt::format("{} kind {} length {}", name_of(type), kind, n));
        const Shape shape{3, n};
        Graph g;
        NodeId key = g.input("x", type, shape);
        const auto number = [&](double v) { return g.broadcast(g.constant(type, v), shape); };
        if (kind == 0) // bits of the products reach the top
          for (int i = 0; i < 2; ++i)
            key = g.binary(Op::Mul, key, number(type == DType::U16 ? 40503.0 : 2654435761.0));
        if (kind == 1)
          key = g.binary(Op::And, key, number(0.0));
        if (kind >= 2) {
          const NodeId place = g.cast(g.broadcast(g.iota(n), shape), type);
          key = g.binary(Op::Add, place, g.binary(Op::And, key, number(0.0)));
        }
        if (kind == 3)
          key = g.flip(key, {1});
        g.outputs = {g.argsort(key, 1, rng.chance(0.5) ? n : 1 + rng.below(30))};
        const Target target = testing::test_targets().back();
        check_graph(g, target, rng, std::uint64_t(n), 3);
        if (::testing::Test::HasFatalFailure())
          return;
      }
}

/// Rows that fit vectors of neighbouring ones go through a network, those of any other form do not.
TEST(Sorts, OfACpuAreChosenByTheirForm) {
  const Target target = testing::test_targets().back();
  const struct {
    Graph graph;
    std::vector<std::int64_t> ways;
  } cases[] = {
      {order(DType::U32, {500, 29}, 5), {3}},      {order(DType::U16, {400, 144}, 40), {3}},
      {order(DType::I64, {400, 3000}, 3000), {0}}, {order(DType::U32, {1 << 20}, 1 << 20), {0, 1}},
      {order(DType::U32, {1 << 16}, 3), {2}},      {order(DType::U32, {1 << 16}, 200), {4}}};
  for (const auto& c : cases) {
    const auto regions = testing::regions_of(c.graph, target);
    ASSERT_EQ(regions.size(), 1u);
    const kernel::Chosen chosen = kernel::lower_greedily(regions[0], target);
    const std::int64_t way = chosen.schedule.knob("way", -1);
    EXPECT_TRUE(std::find(c.ways.begin(), c.ways.end(), way) != c.ways.end())
        << to_string(chosen.schedule);
  }
}

TEST(Sorts, RunOnTheCpu) {
  for (const char* level : testing::cpu_levels()) {
    backend::Device& device = testing::cpu_at(level);
    check_random_sorts(device.target(), 10, 500, 100, &device);
  }
}

TEST(Sorts, OfLongRowsAreSharedOutOnTheCpu) {
  backend::Device& device = testing::cpu_at(testing::cpu_levels().back());
  Rng rng(1);
  const Graph g = order(DType::I32, {70001}, 70001);
  const auto inputs = testing::random_inputs(g, 3, {.special = false});
  const testing::RegionCase c = testing::region_cases(g, inputs).at(0);
  Target target = device.target();
  target.workers = 8;
  const kernel::Chosen chosen = kernel::lower_greedily(c.region, target);
  EXPECT_GE(chosen.program.launch.workers.value(), 4) << to_string(chosen.schedule);
  check_sort(c, target, rng, 1, &device);
}

TEST(Sorts, OfAGpuAgreeWithTheReference) {
  check_random_sorts(testing::test_gpu(), 40, 150, 1);
}

TEST(Sorts, OfAGpuHaveRightBordersOfTiles) {
  Rng rng(5);
  for (const std::int64_t n : {1, 31, 32, 33, 95, 96, 97, 192, 193, 300})
    check_graph(order(DType::I8, {2, n}, n), testing::test_gpu(), rng, std::uint64_t(n), 1);
}

/// Rows of many tiles, so that groups of tiles look back over groups.
TEST(Sorts, OfAGpuLookBackOverGroups) {
  Rng rng(8);
  const Target target = testing::test_gpu();
  const kernel::Generator& generator = sort_generator(target);
  for (const DType type : {DType::I8, DType::U32, DType::I64})
    for (const std::int64_t n : {2, 32, 33, 1000}) {
      const Graph g = order(type, {1 + rng.below(2), n}, n);
      const auto inputs = testing::random_inputs(g, std::uint64_t(n), {.special = false});
      const testing::RegionCase c =
          testing::aligned_for(testing::region_cases(g, inputs).at(0), target);
      const Schedule s =
          with_sort_schedule(generator, {{"way", 3}, {"threads", 32}, {"each", 1}, {"bits", 4}});
      for (const int blocks : {1, 7}) {
        const std::string wrong = testing::check_schedule(c, generator, s, target,
                                                          {.workers = blocks}, /*must_lower=*/true);
        EXPECT_TRUE(wrong.empty()) << wrong;
      }
    }
}

/// Keys that are equal, or differ in some digits only, low or high ones: passes in which all digits
/// are one are left out, an even or an odd number of them, in each row for itself.
TEST(Sorts, OfAGpuLeaveOutDigitsThatAreEqual) {
  const Target target = testing::test_gpu();
  const kernel::Generator& generator = sort_generator(target);
  const auto check = [&](DType type, std::int64_t mask, std::int64_t rows) {
    SCOPED_TRACE(fmt::format("{}, mask {:x}, {} rows", name_of(type), mask, rows));
    const Shape shape{rows, 150};
    Graph g;
    const auto all = [&](std::int64_t v) {
      return g.broadcast(g.constant(Scalar::of(type, v)), shape);
    };
    const std::int64_t spread = type == DType::U16 ? 40503 : 0x1e3779b97f4a7c15;
    NodeId key = g.binary(Op::Mul, g.input("x", type, shape), all(spread));
    key = g.binary(Op::And, key, all(mask));
    if (rows > 1) { // the first row has one key
      const NodeId row = g.cast(g.broadcast(g.reshape(g.iota(rows), {rows, 1}), shape), type);
      key = g.binary(Op::Mul, key, row);
      key = g.binary(Op::And, key, all(mask));
    }
    g.outputs = {g.argsort(key, 1, 150)};
    const auto inputs = testing::random_inputs(g, 4, {.special = false});
    for (testing::RegionCase& found : testing::region_cases(g, inputs)) {
      if (!sorts(found))
        continue;
      const testing::RegionCase c = testing::aligned_for(found, target);
      for (const Schedule& s :
           {with_sort_schedule(generator, {{"way", 3}, {"threads", 32}, {"each", 1}, {"bits", 4}}),
            with_sort_schedule(generator, {{"way", 1}, {"threads", 32}, {"each", 5}, {"bits", 4}})})
        for (const int blocks : {1, 5}) {
          const std::string wrong = testing::check_schedule(
              c, generator, s, target, {.workers = blocks}, /*must_lower=*/true);
          EXPECT_TRUE(wrong.empty()) << wrong;
        }
    }
  };
  for (const std::int64_t rows : {1, 3}) {
    for (const std::int64_t mask : {0x0, 0xf, 0xf0, 0xf00f, 0x0ff0, 0xf0f0})
      check(DType::U16, mask, rows);
    for (const std::int64_t mask : {0x0ll, 0x7ll, 0xf0f0ll, 0x7000000000ll, -1ll})
      check(DType::I64, mask, rows);
  }
}

/// Passes of 64-bit keys are made where keys differ there or above; shorter keys have few passes,
/// for which the largest and the smallest need not be found.
TEST(Sorts, OfAGpuMakePassesOf64BitsWhereKeysDiffer) {
  const Target target = testing::test_gpu();
  const kernel::Generator& generator = sort_generator(target);
  for (const DType type : {DType::U32, DType::I64}) {
    const auto regions = testing::regions_of(order(type, {1, 150}, 150), target);
    const kernel::Lowered lowered = generator.lower(
        regions.at(0),
        with_sort_schedule(generator, {{"way", 1}, {"threads", 32}, {"each", 5}, {"bits", 4}}),
        target);
    ASSERT_TRUE(lowered.ok) << lowered.reason;
    EXPECT_EQ(print(lowered.program).find("reduce_threads") != std::string::npos,
              type == DType::I64)
        << print(lowered.program);
  }
}

TEST(Sorts, OfAGpuSelectInSeveralLevels) {
  Rng rng(6);
  const Target target = testing::test_gpu();
  for (const std::int64_t count : {1, 5, 8}) {
    const Graph g = order(DType::I32, {2, 1000}, count);
    const auto inputs = testing::random_inputs(g, 9, {.special = false});
    const testing::RegionCase c =
        testing::aligned_for(testing::region_cases(g, inputs).at(0), target);
    const kernel::Generator& generator = sort_generator(target);
    const Schedule s =
        with_sort_schedule(generator, {{"way", 2}, {"threads", 32}, {"each", 1}, {"bits", 4}});
    for (const int blocks : {1, 7}) {
      const std::string wrong = testing::check_schedule(c, generator, s, target,
                                                        {.workers = blocks}, /*must_lower=*/true);
      EXPECT_TRUE(wrong.empty()) << wrong;
    }
  }
}

/// The largest tiles: rows of more than 7680 elements, in a block each.
TEST(Sorts, OfAGpuHaveLargeTiles) {
  Target target = testing::test_gpu();
  target.block_shared_bytes = 227 << 10;
  const Graph g = order(DType::U32, {2, 12500}, 12500);
  const auto inputs = testing::random_inputs(g, 4, {.special = true});
  const testing::RegionCase c =
      testing::aligned_for(testing::region_cases(g, inputs).at(0), target);
  const Schedule s =
      with_sort_schedule(sort_generator(target), {{"way", 1}, {"threads", 1024}, {"each", 16}});
  const std::string wrong = testing::check_schedule(c, sort_generator(target), s, target,
                                                    {.workers = 2}, /*must_lower=*/true);
  EXPECT_TRUE(wrong.empty()) << wrong;
}

/// The whole device has work, in one launch.
TEST(Sorts, OfAGpuAreSpreadOverItsBlocks) {
  Target target = testing::test_gpu();
  target.workers = 132;
  target.block_shared_bytes = 227 << 10;
  const struct {
    Graph graph;
    std::int64_t way, blocks;
  } cases[] = {{order(DType::U32, {1 << 20}, 1 << 20), 3, 132},
               {order(DType::U32, {4096, 3000}, 3000), 1, 4096},
               {order(DType::U32, {64, 16000}, 16000), 1, 64},
               {order(DType::U32, {4, 16000}, 16000), 3, 8},
               {order(DType::U32, {16, 128256}, 200), 2, 264}};
  for (const auto& c : cases) {
    const auto regions = testing::regions_of(c.graph, target);
    ASSERT_EQ(regions.size(), 1u);
    const kernel::Chosen chosen = kernel::lower_greedily(regions[0], target);
    EXPECT_EQ(chosen.schedule.knob("way", -1), c.way) << to_string(chosen.schedule);
    EXPECT_GE(chosen.program.launch.workers.value(), c.blocks) << to_string(chosen.schedule);
  }
}

} // namespace
} // namespace egret
