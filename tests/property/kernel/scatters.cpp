// Scatters of random shapes, axes, dtypes and monoids: counters of each worker or thread, and
// sorted updates, agree with the reference on both targets and have the same bits for any number of
// workers.
#include "backend/cuda/target.h"
#include "compiler/join_scatters.h"
#include "egret/functional.h"
#include "egret/graph.h"
#include "kernel/plan.h"
#include "kernel/scatter_form.h"
#include "support/cpu_levels.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;
using kernel::Schedule;
using kernel::Target;
using testing::Rng;

const kernel::Generator& scatter_generator(const Target& target) {
  return testing::generator_named(target.is_gpu() ? "gpu_scatter" : "scatter", target);
}

struct Made {
  Graph graph;
  std::int64_t bins = 1;
};

/// Of some scatters there are several, which are joined.
std::int64_t joined_scatters(Rng& rng) {
  return rng.chance(0.3) ? 2 + rng.below(3) : 1;
}

/// Updates of rows or columns of some data; their index lies outside now and then.
Made scatter_graph(Rng& rng, std::int64_t most) {
  Made made;
  Graph& g = made.graph;
  const DType type = rng.pick(std::vector{DType::F32, DType::F32, DType::F64, DType::BF16,
                                          DType::I32, DType::I64, DType::U8});
  const Op op =
      rng.pick(std::vector{Op::ScatterAdd, Op::ScatterAdd, Op::ScatterMax, Op::ScatterSet});
  const auto rank = std::size_t(1 + rng.below(3));
  const auto axis = std::size_t(rng.below(std::int64_t(rank)));
  Shape data;
  for (std::size_t i = 0; i < rank; ++i)
    data.push_back(1 + rng.below(i == axis ? 9 : 5));
  made.bins = data[axis].value();
  Shape index{1 + rng.below(most)};
  if (rng.chance(0.3))
    index.push_back(1 + rng.below(4));
  Shape updates(data.begin(), data.begin() + std::ptrdiff_t(axis));
  updates.insert(updates.end(), index.begin(), index.end());
  updates.insert(updates.end(), data.begin() + std::ptrdiff_t(axis) + 1, data.end());
  NodeId sum = g.input("data", type, data);
  for (std::int64_t left = joined_scatters(rng); left > 0; --left) {
    const NodeId at = g.binary(Op::And, g.input("index", DType::I32, index),
                               g.broadcast(g.constant(DType::I32, 7.0), index));
    sum = g.scatter(op, sum, at, g.input("updates", type, updates), std::int64_t(axis));
  }
  g.outputs = {sum};
  made.graph = compiler::join_scatters(g, testing::test_gpu());
  return made;
}

/// Updates of lines of some data along an axis, with indices of each line: one in seven lies
/// outside of it.
Made line_scatter_graph(Rng& rng, std::int64_t most) {
  Made made;
  Graph& g = made.graph;
  const DType type = rng.pick(std::vector{DType::F32, DType::F64, DType::BF16, DType::I32});
  const Op op = rng.pick(std::vector{Op::ScatterAdd, Op::ScatterMax, Op::ScatterSet});
  const auto rank = std::size_t(2 + rng.below(2));
  const auto axis = std::size_t(rng.below(std::int64_t(rank)));
  Shape data, updates;
  Expr count(1), stride(1);
  for (std::size_t i = 0; i < rank; ++i) {
    data.push_back(2 + rng.below(5));
    updates.push_back(
        i == axis ? Expr(1 + rng.below(std::min<std::int64_t>(most, rng.chance(0.3) ? 80 : 12)))
                  : Expr(1 + rng.below(data[i].value())));
    count = count * data[i];
    if (i > axis)
      stride = stride * data[i];
  }
  made.bins = data[axis].value();
  const auto number = [&](std::int64_t value) {
    return g.broadcast(g.constant(Scalar::of(DType::I64, value)), updates);
  };
  Shape first = updates;
  first[axis] = Expr(1);
  const std::vector<Expr> begin(rank, Expr(0));
  const NodeId lines = g.expand(g.shrink(g.reshape(g.iota(count), data), begin, first), updates);
  NodeId sum = g.reshape(g.input("data", type, data), {count});
  for (std::int64_t left = joined_scatters(rng); left > 0; --left) {
    const NodeId drawn = g.binary(Op::And, g.input("index", DType::I64, updates), number(7));
    const NodeId at = g.binary(Op::Add, drawn, number(-1));
    const NodeId negative = g.binary(Op::Lt, at, number(0));
    const NodeId truth = g.broadcast(g.constant(DType::Bool, 1.0), updates);
    const NodeId valid = g.binary(Op::And, g.binary(Op::Xor, negative, truth),
                                  g.binary(Op::Lt, at, number(made.bins)));
    const NodeId element = g.binary(Op::Add, g.binary(Op::Mul, at, number(stride.value())), lines);
    sum = g.scatter(op, sum, g.select(valid, element, number(-1)),
                    g.input("updates", type, updates), 0);
  }
  g.outputs = {sum};
  made.graph = compiler::join_scatters(g, testing::test_gpu());
  return made;
}

Schedule
with_scatter_schedule(const kernel::Generator& generator,
                      std::initializer_list<std::pair<const std::string, std::int64_t>> knobs) {
  Schedule s;
  s.generator = generator.name();
  s.knobs = knobs;
  return s;
}

std::vector<Schedule> scatter_schedules(const testing::RegionCase& c, const Target& target,
                                        Rng& rng) {
  const kernel::Generator& generator = scatter_generator(target);
  std::vector<Schedule> all = generator.space(c.region, target), more;
  if (all.size() > 1)
    all.resize(1);
  if (target.is_gpu()) {
    more.push_back(with_scatter_schedule(generator, {{"threads", rng.chance(0.5) ? 32 : 64},
                                                     {"groups", 1 + rng.below(12)},
                                                     {"together", 1 + rng.below(4)}}));
    const auto together = [&] {
      return std::pair<const std::string, std::int64_t>{"together", 1 + rng.below(4)};
    };
    more.push_back(with_scatter_schedule(generator, {{"way", 2},
                                                     {"threads", rng.chance(0.5) ? 32 : 64},
                                                     {"groups", 1 + rng.below(5)},
                                                     {"copies", rng.chance(0.5) ? 4 : 1},
                                                     together()}));
    for (const int way : {3, 4, 5, 6, 7, 8})
      if (rng.chance(0.5))
        more.push_back(
            with_scatter_schedule(generator, {{"way", way}, {"threads", 32}, together()}));
    more.push_back(with_scatter_schedule(generator, {{"way", 9},
                                                     {"threads", rng.chance(0.5) ? 64 : 128},
                                                     {"groups", 1 + rng.below(7)},
                                                     {"range", 1 + rng.below(3)}}));
    const std::int64_t warps = 1 + rng.below(3);
    more.push_back(with_scatter_schedule(generator, {{"way", 10},
                                                     {"threads", 32 * warps},
                                                     {"columns", warps * (1 + rng.below(3))},
                                                     {"together", 1 + rng.below(3)}}));
    more.push_back(with_scatter_schedule(generator, {{"way", 11},
                                                     {"threads", rng.chance(0.5) ? 32 : 64},
                                                     {"columns", 1 + rng.below(9)},
                                                     {"owners", 1 + rng.below(3)},
                                                     {"together", 1 + rng.below(4)}}));
    more.push_back(with_scatter_schedule(generator, {{"way", 13},
                                                     {"threads", rng.chance(0.5) ? 32 : 64},
                                                     {"range", 1 + rng.below(40)},
                                                     {"each", 1 + rng.below(5)},
                                                     together()}));
    more.push_back(with_scatter_schedule(generator, {{"way", 12},
                                                     {"threads", rng.chance(0.5) ? 32 : 64},
                                                     {"lanes", 1 << rng.below(4)},
                                                     {"columns", 1 + rng.below(3)},
                                                     {"chunk", 1 + rng.below(9)},
                                                     {"together", 1 + rng.below(4)}}));
    // Several owners of a column's elements, each of which may have several columns.
    more.push_back(with_scatter_schedule(generator, {{"way", 7},
                                                     {"threads", 32},
                                                     {"owners", 2 + rng.below(3)},
                                                     {"columns", 1 + rng.below(2)}}));
    more.push_back(with_scatter_schedule(generator, {{"way", 1},
                                                     {"threads", 32},
                                                     {"each", 1 + 2 * rng.below(2)},
                                                     {"bits", 2 + rng.below(3)},
                                                     {"chunk", 1 + rng.below(9)},
                                                     {"together", 1 + rng.below(3)}}));
  } else {
    more.push_back(with_scatter_schedule(generator, {{"slices", 2 + rng.below(6)}}));
    const std::int64_t own = 2 + rng.below(3); // the last of them is short, or empty
    more.push_back(with_scatter_schedule(
        generator, {{"slices", own * (1 + rng.below(3))}, {"together", own}}));
    more.push_back(with_scatter_schedule(
        generator, {{"slices", 2 * (1 + rng.below(3))}, {"together", 2}, {"ahead", 1}}));
    for (const int ahead : {0, 1}) // whole columns, some of which are left at the end
      more.push_back(with_scatter_schedule(
          generator, {{"slices", 1}, {"together", 1 + rng.below(4)}, {"ahead", ahead}}));
  }
  for (const Schedule& s : more)
    if (generator.lower(c.region, s, target).ok)
      all.push_back(s);
  return all;
}

/// Gives the number of schedules that were run.
int check_scatter(const testing::RegionCase& c, const Target& target, Rng& rng,
                  backend::Device* device = nullptr) {
  const kernel::Generator& generator = scatter_generator(target);
  int run = 0;
  for (const Schedule& s : scatter_schedules(c, target, rng)) {
    ++run;
    std::vector<std::byte> first;
    for (const int workers : {1, 2, 5}) {
      const testing::RunOptions options{.device = device, .workers = workers};
      const std::string wrong =
          testing::check_schedule(c, generator, s, target, options, /*must_lower=*/true);
      EXPECT_TRUE(wrong.empty()) << workers << " workers: " << wrong;
      if (!wrong.empty())
        return run;
      const auto bits =
          testing::run_region(c, generator.lower(c.region, s, target).program, options)[0].bytes;
      if (first.empty())
        first = bits;
      EXPECT_EQ(bits, first) << to_string(s) << " with " << workers << " workers";
    }
  }
  return run;
}

void check_random_scatters(const Target& target, int graphs, std::int64_t most, bool special,
                           backend::Device* device = nullptr) {
  int run = 0;
  for (int seed = 0; seed < graphs; ++seed) {
    Rng rng(std::uint64_t(seed) * 13 + (special ? 1000003 : 0));
    const Made made = seed % 3 == 2 ? line_scatter_graph(rng, most) : scatter_graph(rng, most);
    const auto inputs =
        testing::random_inputs(made.graph, std::uint64_t(seed), {.special = special});
    SCOPED_TRACE(fmt::format("seed {}", seed));
    for (const testing::RegionCase& c : testing::region_cases(made.graph, inputs))
      if (classify(c.region) == kernel::Form::Scatter)
        run += check_scatter(target.is_gpu() ? testing::aligned_for(c, target) : c, target, rng,
                             device);
    if (::testing::Test::HasFailure())
      return;
  }
  EXPECT_GE(run, graphs / 3);
}

TEST(Scatters, AlongLinesHaveColumns) {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    const Made made = line_scatter_graph(rng, 8);
    for (const testing::RegionCase& c :
         testing::region_cases(made.graph, testing::random_inputs(made.graph, seed, {})))
      if (const auto form = kernel::scatter_form(c.region)) {
        ++found;
        EXPECT_EQ(form->bins, Expr(made.bins)) << "seed " << seed;
        EXPECT_LE(form->updates.size(), form->choice < 0 ? 1U : 2U) << "seed " << seed;
      }
  }
  EXPECT_GE(found, 15);
}

TEST(Scatters, OfACpuAgreeWithTheReference) {
  for (const Target& target : testing::test_targets()) {
    check_random_scatters(target, 60, 60, false);
    check_random_scatters(target, 30, 60, true);
  }
}

TEST(Scatters, RunOnTheCpu) {
  for (const char* level : testing::cpu_levels()) {
    backend::Device& device = testing::cpu_at(level);
    check_random_scatters(device.target(), 8, 300, false, &device);
  }
}

TEST(Scatters, OfAGpuAgreeWithTheReference) {
  check_random_scatters(testing::test_gpu(), 60, 60, false);
}

TEST(Scatters, OfAGpuAgreeForSpecialNumbers) {
  check_random_scatters(testing::test_gpu(), 40, 40, true);
}

Graph added(DType type, const Shape& data, std::int64_t updates, Op op = Op::ScatterAdd) {
  Graph g;
  Shape rows = data;
  rows[0] = updates;
  g.outputs = {g.scatter(op, g.input("data", type, data), g.input("index", DType::I32, {updates}),
                         g.input("updates", type, rows), 0)};
  return g;
}

/// As many integers as elements are less than a sort of the updates where a cache holds them.
TEST(Scatters, OfAGpuTakeMaximaOfFewUpdatesByIntegers) {
  constexpr int kIntegers = 6;
  const Target gpu = backend::cuda::known_target(90);
  const Graph g = added(DType::F32, {402385}, 16384, Op::ScatterMax);
  const auto space =
      testing::generator_named("gpu_scatter", gpu).space(testing::regions_of(g, gpu).at(0), gpu);
  ASSERT_FALSE(space.empty());
  EXPECT_EQ(space[0].knob("way", 0), kIntegers) << to_string(space[0]);
}

/// Few updates of each line, of which blocks look at those that begin a run and not at all
/// elements.
TEST(Scatters, OfAGpuGoThroughFewUpdatesOfLongLines) {
  const Target gpu = testing::test_gpu();
  const kernel::Generator& generator = scatter_generator(gpu);
  for (const Op op : {Op::ScatterAdd, Op::ScatterMax}) {
    Graph g;
    const Shape at{7};
    const NodeId index = g.binary(Op::And, g.input("index", DType::I32, at),
                                  g.broadcast(g.constant(DType::I32, 131.0), at));
    g.outputs = {g.scatter(op, g.input("data", DType::F32, {33, 130}), index,
                           g.input("updates", DType::F32, {33, 7}), 1)};
    for (std::uint64_t seed = 0; seed < 6; ++seed)
      for (const testing::RegionCase& c : testing::region_cases(
               g, testing::random_inputs(g, seed, {.special = seed % 2 == 1}), gpu))
        for (const int range : {1, 5, 40}) {
          const Schedule s = with_scatter_schedule(
              generator, {{"way", 9}, {"threads", 64}, {"groups", 3}, {"range", range}});
          EXPECT_EQ(testing::check_schedule(c, generator, s, gpu, {}, /*must_lower=*/true), "");
          const auto program = generator.lower(c.region, s, gpu).program;
          EXPECT_TRUE(std::ranges::none_of(program.buffers, [](const kernel::Buffer& b) {
            return b.name == "begins"; // of all elements
          })) << to_string(s);
        }
  }
}

/// Elements of which blocks hold a range each, whether updates are fewer or more than they are.
TEST(Scatters, OfAGpuPartitionUpdatesByRangesOfManyElements) {
  constexpr int kPartitions = 13;
  const Target gpu = backend::cuda::known_target(90);
  for (const std::int64_t updates : {800000, 16000000}) {
    const Graph g = added(DType::F32, {2755811}, updates);
    const kernel::Chosen chosen = kernel::lower_greedily(testing::regions_of(g, gpu).at(0), gpu);
    EXPECT_EQ(chosen.schedule.knob("way", -1), kPartitions) << to_string(chosen.schedule);
    EXPECT_TRUE(chosen.program.launch.resident);
    EXPECT_GE(chosen.program.launch.workers.value(), 2 * gpu.workers);
  }
}

/// Sums in fixed point are nearer to the true ones than sums in f32, whatever else is added
/// elsewhere: each element has a scale of its own.
TEST(Scatters, OfAGpuInFixedPointKeepSmallElementsApart) {
  constexpr std::int64_t kElements = 5, kUpdates = 4000;
  Graph g;
  const NodeId data = g.input("data", DType::F32, {kElements}),
               index = g.input("index", DType::I32, {kUpdates}),
               brought = g.input("updates", DType::F32, {kUpdates});
  g.outputs = {g.scatter(Op::ScatterAdd, data, index, brought, 0)};
  const Target gpu = testing::test_gpu();
  using backend::reference::HostArray;
  std::vector<HostArray> inputs{
      {DType::F32, {kElements}}, {DType::I32, {kUpdates}}, {DType::F32, {kUpdates}}};
  Rng rng(5);
  std::vector<double> sums(kElements), magnitudes(kElements);
  for (std::int64_t i = 0; i < kUpdates; ++i) {
    const std::int64_t at = rng.below(kElements);
    const double number = double(rng.below(1 << 20) - (1 << 19));
    const double value = double(float(std::ldexp(number, int(at * 50 - 130))));
    inputs[1].set(i, {.i = at});
    inputs[2].set(i, {.f = value});
    sums[std::size_t(at)] += value;
    magnitudes[std::size_t(at)] = std::max(magnitudes[std::size_t(at)], std::abs(value));
  }
  const auto cases = testing::region_cases(g, inputs, gpu);
  ASSERT_EQ(cases.size(), 1u);
  const kernel::Generator& generator = scatter_generator(gpu);
  for (const Schedule& schedule :
       {with_scatter_schedule(generator, {{"way", 6}}),
        with_scatter_schedule(generator, {{"way", 13}, {"range", 2}}),
        with_scatter_schedule(generator, {{"way", 12}, {"lanes", 1}}),
        with_scatter_schedule(generator, {{"way", 12}, {"lanes", 1}, {"chunk", 4096}})}) {
    const auto lowered = generator.lower(cases[0].region, schedule, gpu);
    ASSERT_TRUE(lowered.ok) << lowered.reason;
    const auto out = testing::run_region(cases[0], lowered.program)[0];
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const double got = out.at(std::int64_t(i)).f;
      const double rounding = std::max(std::abs(sums[i]) * 0x1p-24, 0x1p-149);
      EXPECT_LE(std::abs(got - sums[i]), rounding + kUpdates * magnitudes[i] * 0x1p-45)
          << i << " " << to_string(schedule);
    }
  }
}

/// The whole device has work, in one launch, and no thread looks at all updates.
TEST(Scatters, OfAGpuAreSpreadOverItsBlocks) {
  Target target = testing::test_gpu();
  target.workers = 132;
  target.block_shared_bytes = 227 << 10;
  target.l2_bytes = 50 << 20;
  const struct {
    Graph graph;
    std::int64_t way, blocks;
  } cases[] = {{added(DType::I32, {256}, 1 << 24), 2, 132},
               {added(DType::I64, {4096}, 1 << 23), 2, 132},
               {added(DType::I64, {1 << 20}, 1 << 20), 3, 132},
               {added(DType::I64, {8192}, 200000), 2, 10},
               {added(DType::F32, {64, 32}, 1 << 18), 0, 132},
               {added(DType::F32, {256}, 1 << 20), 0, 132},
               {added(DType::F32, {32}, 20000), 0, 16},
               {added(DType::F32, {1024}, 100000), 6, 90},
               {added(DType::F32, {1728, 16}, 20000), 6, 132},
               {added(DType::F32, {1728, 64}, 20000), 12, 50},
               {added(DType::F32, {50257, 768}, 1 << 14), 12, 132},
               {added(DType::BF16, {1 << 12, 128}, 1 << 16), 12, 132},
               {added(DType::F64, {50257, 768}, 1 << 14), 1, 132},
               {added(DType::F32, {1 << 20}, 1 << 22), 13, 132},
               {added(DType::F32, {39176}, 1 << 18), 13, 132},
               {added(DType::F32, {1 << 16}, 1 << 16, Op::ScatterMax), 6, 132},
               {added(DType::F32, {1 << 23}, 424), 5, 1},
               {added(DType::F32, {4096}, 1000), 5, 1},
               {added(DType::F32, {4096}, 4096), 6, 1},
               {added(DType::F32, {1 << 20}, 1 << 20, Op::ScatterSet), 4, 132}};
  for (const auto& c : cases) {
    const auto regions = testing::regions_of(c.graph, target);
    ASSERT_EQ(regions.size(), 1u);
    const kernel::Chosen chosen = kernel::lower_greedily(regions[0], target);
    EXPECT_EQ(chosen.schedule.generator, "gpu_scatter");
    EXPECT_EQ(chosen.schedule.knob("way", -1), c.way) << to_string(chosen.schedule);
    EXPECT_GE(chosen.program.launch.workers.value(), c.blocks) << to_string(chosen.schedule);
  }
}

/// Lines with indices of their own, whichever axis they go along: blocks have tables of a few
/// neighbouring ones, of sums of f32 in fixed point. Nothing is copied before.
TEST(Scatters, OfAGpuHaveTablesOfNeighbouringLines) {
  Target target = testing::test_gpu();
  target.workers = 132;
  target.block_shared_bytes = 227 << 10;
  for (const std::int64_t axis : {0, 1}) {
    egret::Graph cx;
    scatter_add(cx.tensor({2048, 1024}, DType::F32, "data"), axis,
                cx.tensor({2048, 1024}, DType::I64, "index"),
                cx.tensor({2048, 1024}, DType::F32, "updates"))
        .retrieve();
    bool found = false;
    for (const kernel::Region& region : testing::regions_of(ir::parse_graph(cx.text()), target))
      if (classify(region) == kernel::Form::Scatter) {
        const kernel::Chosen chosen = kernel::lower_greedily(region, target);
        EXPECT_EQ(chosen.schedule.knob("way", -1), 11) << to_string(chosen.schedule);
        EXPECT_GE(chosen.program.launch.workers.value(), 100) << to_string(chosen.schedule);
        EXPECT_FALSE(kernel::updates_in_place(region, chosen.program, 0));
        found = true;
      }
    EXPECT_TRUE(found);
  }
}

/// Updates whose neighbours in memory go to different elements of one line: a block reads whole
/// lines, and sorts the index once for all of its lines.
TEST(Scatters, OfAGpuReadLinesAsTheyLieInMemory) {
  Target target = testing::test_gpu();
  target.workers = 132;
  target.block_shared_bytes = 227 << 10;
  for (const Op op : {Op::ScatterAdd, Op::ScatterMax})
    for (const DType type : {DType::F32, DType::BF16}) {
      Graph g;
      g.outputs = {g.scatter(op, g.input("data", type, {2048, 300}),
                             g.input("index", DType::I64, {1024}),
                             g.input("updates", type, {2048, 1024}), 1)};
      const auto regions = testing::regions_of(g, target);
      ASSERT_EQ(regions.size(), 1u);
      const kernel::Chosen chosen = kernel::lower_greedily(regions[0], target);
      EXPECT_EQ(chosen.schedule.knob("way", -1), 9) << to_string(chosen.schedule);
      EXPECT_GE(chosen.program.launch.workers.value(), 132) << to_string(chosen.schedule);
    }
  // Lines that are beside each other are read so by threads as they are.
  Graph g;
  g.outputs = {g.scatter(Op::ScatterAdd, g.input("data", DType::F32, {300, 2048}),
                         g.input("index", DType::I64, {1024}),
                         g.input("updates", DType::F32, {1024, 2048}), 0)};
  const kernel::Chosen chosen = kernel::lower_greedily(testing::regions_of(g, target)[0], target);
  EXPECT_NE(chosen.schedule.knob("way", -1), 9) << to_string(chosen.schedule);
}

/// Few updates of wide rows, many times fewer than there are elements, in a type whose sums are
/// not made of integers.
TEST(Scatters, OfAGpuHaveOwnersOfElementsWhereNothingElseSuits) {
  for (const DType type : {DType::F64}) {
    Graph g;
    const NodeId data = g.input("data", type, {50000, 4096}),
                 index = g.input("index", DType::I32, {1000});
    g.outputs = {g.scatter(Op::ScatterAdd, data, index, g.input("updates", type, {1000, 4096}), 0)};
    const Target gpu = testing::test_gpu();
    for (const kernel::Region& region : testing::regions_of(g, gpu))
      if (classify(region) == kernel::Form::Scatter) {
        const kernel::Chosen chosen = kernel::lower_greedily(region, gpu);
        EXPECT_EQ(chosen.schedule.generator, "gpu_scatter");
        EXPECT_GT(chosen.schedule.knob("owners", 1), gpu.workers) << to_string(chosen.schedule);
        EXPECT_GE(chosen.program.launch.workers.value(), 16 * gpu.workers);
      }
  }
}

TEST(Scatters, OfACpuAreSharedOutWhereElementsAreFew) {
  for (const Target& target : testing::test_targets()) {
    const auto regions = testing::regions_of(added(DType::I32, {256}, 1 << 20), target);
    const kernel::Chosen chosen = kernel::lower_greedily(regions.at(0), target);
    EXPECT_EQ(chosen.schedule.generator, "scatter");
    EXPECT_GE(chosen.program.launch.workers.value(), 16);
  }
}

/// Columns that never meet are shared out, however narrow.
TEST(Scatters, OfACpuAreSharedOutAlongColumns) {
  for (Target target : testing::test_targets())
    for (const int workers : {2, 8, 48}) {
      target.workers = workers;
      const auto regions = testing::regions_of(added(DType::F32, {50257, 768}, 8192), target);
      const kernel::Chosen chosen = kernel::lower_greedily(regions.at(0), target);
      EXPECT_GE(chosen.program.launch.workers.value(), workers) << to_string(chosen.schedule);
    }
}

} // namespace
} // namespace egret
