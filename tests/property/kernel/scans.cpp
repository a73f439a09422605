// Scans of random shapes, axes, monoids and dtypes, with maps before and after and of reversed
// axes: whole rows and pieces agree with the reference on both targets, and have the same bits for
// any number of workers.
#include "support/cpu_levels.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <tuple>
#include <utility>
#include <vector>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;
using kernel::Schedule;
using kernel::Target;
using testing::Rng;

const kernel::Generator& generator_of(const Target& target) {
  return testing::generator_named(target.is_gpu() ? "gpu_scans" : "scans", target);
}

NodeId number(Graph& g, double v, NodeId like) {
  return g.broadcast(g.constant(g[like].dtype, v), g[like].shape);
}

/// f(x) scanned along an axis, and what may be made of it at the same point.
Graph scan_graph(Rng& rng, std::int64_t longest) {
  Graph g;
  const DType type =
      rng.pick(std::vector{DType::F32, DType::F32, DType::F32, DType::BF16, DType::F16, DType::F64,
                           DType::I32, DType::I64, DType::U32, DType::U8});
  Op op =
      rng.pick(std::vector{Op::ScanSum, Op::ScanSum, Op::ScanMax, Op::ScanProd, Op::ScanLinear});
  if (op == Op::ScanLinear && !is_float(type))
    op = Op::ScanSum;
  const auto rank = std::size_t(1 + rng.below(3));
  const auto axis = std::size_t(rng.below(std::int64_t(rank)));
  Shape shape;
  for (std::size_t i = 0; i < rank; ++i)
    shape.push_back(i == axis ? 1 + rng.below(longest) : 1 + rng.below(9));
  const auto along = std::int64_t(axis);
  const NodeId x = g.input("x", type, shape);
  NodeId term = x;
  const bool turned = rng.chance(0.3);
  if (rng.chance(0.4))
    term = g.binary(Op::Mul, term, g.input("w", type, shape));
  if (rng.chance(0.2) && is_float(type))
    term = g.unary(Op::Tanh, term);
  if (turned)
    term = g.flip(term, {along});
  NodeId made = op == Op::ScanLinear ? g.linear_scan(term, g.input("a", type, shape), along)
                                     : g.scan(op, term, along);
  g.outputs = {made};
  switch (rng.below(4)) {
  case 0:
    break;
  case 1: // only what is made of the scan
    g.outputs = {g.binary(Op::Add, g.binary(Op::Mul, made, number(g, 2, made)), x)};
    break;
  case 2:
    g.outputs.push_back(g.binary(Op::Max, made, number(g, 1, made)));
    break;
  default:
    if (turned)
      g.outputs = {g.flip(made, {along})};
    break;
  }
  return g;
}

Schedule with(const kernel::Generator& generator,
              std::initializer_list<std::pair<const std::string, std::int64_t>> knobs) {
  Schedule s;
  s.generator = generator.name();
  s.knobs = knobs;
  return s;
}

/// Pieces of any size, which tell whether borders are right.
std::vector<Schedule> schedules(const testing::RegionCase& c, const Target& target, Rng& rng) {
  const kernel::Generator& generator = generator_of(target);
  std::vector<Schedule> all = generator.space(c.region, target);
  const std::int64_t piece = 1 + rng.below(40), together = rng.below(5);
  const bool ordered = std::ranges::any_of(
      c.region.stages, [](const kernel::Stage& stage) { return stage.monoid == Monoid::Linear; });
  // Slices and parts of warps refuse what must stay in order.
  const auto offer = [&](const Schedule& s) {
    if (!ordered || generator.lower(c.region, s, target).ok)
      all.push_back(s);
  };
  if (target.is_gpu()) {
    offer(with(generator, {{"threads", 64},
                           {"group", rng.pick(std::vector{64, 32, 8, 1})},
                           {"copies", 1 + rng.below(3)},
                           {"lanes", rng.pick(std::vector{1, 2, 4})},
                           {"piece", piece},
                           {"together", together}}));
    const std::int64_t copies = 1 + rng.below(2), lanes = 1;
    const Schedule once = with(generator, {{"threads", 64},
                                           {"copies", copies},
                                           {"lanes", lanes},
                                           {"piece", 64 * copies * lanes},
                                           {"onepass", 1}});
    if (generator.lower(c.region, once, target).ok) // the axis may be too short
      all.push_back(once);
  } else {
    offer(with(generator, {{"copies", 1 + rng.below(4)},
                           {"vectors", 1 + rng.below(4)},
                           {"piece", piece},
                           {"together", together}}));
    offer(with(generator, {{"piece", 64}, {"together", 3}}));
  }
  return all;
}

/// All schedules agree with the reference for any number of workers, with the same bits.
void check(const testing::RegionCase& c, const Target& target, Rng& rng,
           backend::Device* device = nullptr) {
  const kernel::Generator& generator = generator_of(target);
  for (const Schedule& s : schedules(c, target, rng)) {
    std::vector<std::vector<std::byte>> first;
    for (const int workers : {1, 2, 5}) {
      const testing::RunOptions options{
          .device = device, .workers = workers, .in_place = workers == 2};
      const std::string wrong =
          testing::check_schedule(c, generator, s, target, options, /*must_lower=*/true);
      ASSERT_TRUE(wrong.empty()) << workers << " workers: " << wrong;
      const auto outputs =
          testing::run_region(c, generator.lower(c.region, s, target).program, options);
      std::vector<std::vector<std::byte>> bits;
      for (const auto& o : outputs)
        bits.push_back(o.bytes);
      if (first.empty())
        first = bits;
      ASSERT_EQ(bits, first) << to_string(s) << " with " << workers << " workers:\n"
                             << print(c.region);
      if (device != nullptr && workers == 2)
        break;
    }
  }
}

bool scans(const testing::RegionCase& c) {
  return classify(c.region) == kernel::Form::Scan;
}

void check_random(const Target& target, int graphs, std::int64_t longest, bool special,
                  backend::Device* device = nullptr) {
  for (int seed = 0; seed < graphs; ++seed) {
    Rng rng(std::uint64_t(seed) * 7 + (special ? 1000003 : 0));
    const Graph g = scan_graph(rng, longest);
    const auto inputs = testing::random_inputs(g, std::uint64_t(seed), {.special = special});
    for (testing::RegionCase& c : testing::region_cases(g, inputs)) {
      if (!scans(c))
        continue;
      SCOPED_TRACE(fmt::format("seed {}", seed));
      if (rng.chance(0.3))
        testing::take_over_operands(c.region);
      check(target.is_gpu() ? testing::aligned_for(c, target) : c, target, rng, device);
      if (::testing::Test::HasFatalFailure())
        return;
    }
  }
}

TEST(Scans, OfACpuAgreeWithTheReference) {
  for (const Target& target : testing::test_targets())
    check_random(target, 60, 90, false);
}

TEST(Scans, OfACpuAgreeForSpecialNumbers) {
  for (const Target& target : testing::test_targets())
    check_random(target, 40, 70, true);
}

TEST(Scans, RunOnTheCpu) {
  for (const char* level : testing::cpu_levels()) {
    backend::Device& device = testing::cpu_at(level);
    check_random(device.target(), 8, 300, false, &device);
    check_random(device.target(), 4, 100, true, &device);
  }
}

TEST(Scans, OfAGpuAgreeWithTheReference) {
  check_random(testing::test_gpu(), 50, 200, false);
}

TEST(Scans, OfAGpuAgreeForSpecialNumbers) {
  check_random(testing::test_gpu(), 30, 120, true);
}

/// A sum along `axis` of so many numbers, and its mean so far.
Graph running_mean(const Shape& shape, std::int64_t axis, DType type = DType::F32) {
  Graph g;
  const NodeId x = g.input("x", type, shape);
  const NodeId sum = g.scan(Op::ScanSum, x, axis);
  g.outputs = {g.binary(Op::Mul, sum, number(g, 1.0 / 3, sum))};
  return g;
}

TEST(Scans, OfOneLongAxisAreCutAndAgree) {
  const Graph g = running_mean({70001}, 0);
  const auto inputs = testing::random_inputs(g, 3, {.special = false});
  for (const Target& target : {testing::test_targets()[0], testing::test_gpu()}) {
    const auto cases = testing::region_cases(g, inputs);
    ASSERT_EQ(cases.size(), 1u); // the mean goes along with the sum
    const testing::RegionCase c =
        target.is_gpu() ? testing::aligned_for(cases[0], target) : cases[0];
    const kernel::Generator& generator = generator_of(target);
    const Schedule s = generator.space(c.region, target).at(0);
    EXPECT_GT(s.knob("piece", 0), 0) << to_string(s);
    const std::string wrong =
        testing::check_schedule(c, generator, s, target, {.workers = 3}, /*must_lower=*/true);
    EXPECT_TRUE(wrong.empty()) << wrong;
  }
}

/// h[i] = a[i] h[i-1] + x[i] along the last axis.
Graph recurrence(const Shape& shape) {
  Graph g;
  g.outputs = {g.linear_scan(g.input("x", DType::F32, shape), g.input("a", DType::F32, shape),
                             std::int64_t(shape.size()) - 1)};
  return g;
}

/// A single row by all blocks, few rows by a block each, short ones by a warp: never by a thread,
/// where a row is more than a few accesses.
TEST(Scans, OfLinearMapsShareAContiguousRowOut) {
  const Target gpu = testing::test_gpu();
  for (const auto& [shape, group, once] :
       std::vector<std::tuple<Shape, std::int64_t, bool>>{{{1 << 20}, 128, true},
                                                          {{229, 18168}, 256, false},
                                                          {{64, 300}, 32, false},
                                                          {{1 << 17, 128}, 1, false},
                                                          {{300, 4}, 1, false}}) {
    const kernel::Region region = testing::regions_of(recurrence(shape), gpu).at(0);
    const Schedule s = generator_of(gpu).space(region, gpu).at(0);
    EXPECT_EQ(s.knob("group", 0), group) << to_string(s);
    EXPECT_EQ(s.knob("onepass", 0) != 0, once) << to_string(s);
  }
}

/// What a second cache holds is read twice, of what it does not hold every element once.
TEST(Scans, OfLongRowsAreInOnePassWhereMemoryIsReadAgain) {
  const Target gpu = testing::test_gpu();
  for (const std::int64_t length : {1 << 20, 1 << 22, 1 << 25}) {
    Graph g;
    g.outputs = {g.scan(Op::ScanSum, g.input("x", DType::F32, {length}), 0)};
    const Schedule s = generator_of(gpu).space(testing::regions_of(g, gpu).at(0), gpu).at(0);
    EXPECT_EQ(s.knob("onepass", 0), length > 1 << 22) << to_string(s);
    EXPECT_GT(s.knob("piece", 0), 0) << to_string(s);
  }
}

/// Combined in order, a row of any length is shared out by all blocks.
TEST(Scans, OfLinearMapsAreInOnePassHoweverLong) {
  const Target gpu = testing::test_gpu();
  for (const std::int64_t length : {1 << 25, 1 << 29}) {
    const kernel::Region region = testing::regions_of(recurrence({length}), gpu).at(0);
    const kernel::Generator& generator = generator_of(gpu);
    const Schedule s = generator.space(region, gpu).at(0);
    EXPECT_EQ(s.knob("onepass", 0), 1) << to_string(s);
    const auto lowered = generator.lower(region, s, gpu);
    EXPECT_TRUE(lowered.ok) << to_string(s) << ": " << lowered.reason;
  }
}

/// A block asks for what it scans next before it waits for what comes before its last slice.
TEST(Scans, InOnePassLoadTheNextSliceBeforeTheyWait) {
  const Target gpu = testing::test_gpu();
  const kernel::Region region = testing::regions_of(recurrence({1 << 25}), gpu).at(0);
  const kernel::Generator& generator = generator_of(gpu);
  const auto lowered = generator.lower(region, generator.space(region, gpu).at(0), gpu);
  ASSERT_TRUE(lowered.ok) << lowered.reason;
  int loads = 0, awaited = 0, late = 0;
  kernel::each_statement(lowered.program.body, [&](const kernel::Stmt& stmt) {
    if (const auto* use = kernel::get_if<kernel::Intrinsic>(stmt))
      awaited += use->id == kernel::IntrinsicId::AwaitWord;
    const auto* load = kernel::made_by<kernel::inst::Load>(stmt);
    if (load &&
        lowered.program.buffers[std::size_t(load->from.buffer)].space == kernel::Space::Argument)
      ++(awaited > 0 ? late : loads);
  });
  EXPECT_GT(loads, 0);
  EXPECT_GT(awaited, 0);
  EXPECT_EQ(late, 0);
}

TEST(Scans, InOnePassHaveTheSameBitsForAnyNumberOfBlocks) {
  const Target target = testing::test_gpu();
  const kernel::Generator& generator = generator_of(target);
  for (const bool special : {false, true})
    // The last two have several groups of pieces.
    for (const auto& [shape, linear] : std::vector<std::pair<Shape, bool>>{{{1000}, false},
                                                                           {{1024}, false},
                                                                           {{3, 700}, false},
                                                                           {{3, 700}, true},
                                                                           {{2, 2500}, true},
                                                                           {{5003}, false},
                                                                           {{2, 2500}, false}}) {
      const Graph g =
          linear ? recurrence(shape) : running_mean(shape, std::int64_t(shape.size()) - 1);
      const auto inputs = testing::random_inputs(g, 5, {.special = special});
      const testing::RegionCase c =
          testing::aligned_for(testing::region_cases(g, inputs).at(0), target);
      for (const int lanes : {1, 4}) {
        const Schedule s = with(generator, {{"threads", 64},
                                            {"lanes", lanes},
                                            {"copies", 1},
                                            {"piece", 64 * lanes},
                                            {"onepass", 1}});
        std::vector<std::byte> first;
        for (const int blocks : {1, 2, 7, 40}) {
          const std::string wrong = testing::check_schedule(
              c, generator, s, target, {.workers = blocks}, /*must_lower=*/true);
          ASSERT_TRUE(wrong.empty()) << wrong;
          const auto bits = testing::run_region(c, generator.lower(c.region, s, target).program,
                                                {.workers = blocks})[0]
                                .bytes;
          if (first.empty())
            first = bits;
          EXPECT_EQ(bits, first) << blocks << " blocks, " << lanes << " lanes";
        }
      }
    }
}

/// States of any type are published in words of 32 bits.
TEST(Scans, InOnePassPublishStatesOfAnyType) {
  const Target target = testing::test_gpu();
  const kernel::Generator& generator = generator_of(target);
  for (const Op op : {Op::ScanSum, Op::ScanMax})
    for (const DType type : {DType::F64, DType::I64, DType::U64, DType::I32, DType::I8, DType::U8,
                             DType::F16, DType::BF16, DType::Bool}) {
      if (op == Op::ScanSum && type == DType::Bool)
        continue;
      Graph g;
      g.outputs = {g.scan(op, g.input("x", type, {2, 700}), 1)};
      const auto inputs = testing::random_inputs(g, 5, {.special = op == Op::ScanMax});
      const testing::RegionCase c =
          testing::aligned_for(testing::region_cases(g, inputs).at(0), target);
      const Schedule s = with(
          generator, {{"threads", 64}, {"lanes", 1}, {"copies", 1}, {"piece", 64}, {"onepass", 1}});
      const std::string wrong =
          testing::check_schedule(c, generator, s, target, {.workers = 3}, /*must_lower=*/true);
      EXPECT_TRUE(wrong.empty()) << info_of(op).name << " of " << name_of(type) << ": " << wrong;
    }
}

/// Whole tiles of an axis of any length are read in accesses that are known to be aligned.
TEST(Scans, OfOddLengthAreReadInWholeVectors) {
  Graph g;
  g.outputs = {g.scan(Op::ScanSum, g.input("x", DType::F32, {5102151}), 0)};
  const Target target = testing::test_gpu();
  const kernel::Region region = testing::regions_of(g, target).at(0);
  const kernel::Generator& generator = generator_of(target);
  for (const Schedule& s : generator.space(region, target)) {
    const auto lowered = generator.lower(region, s, target);
    ASSERT_TRUE(lowered.ok) << to_string(s) << ": " << lowered.reason;
    int whole = 0;
    kernel::each_statement(lowered.program.body, [&](const kernel::Stmt& stmt) {
      const auto* load = kernel::made_by<kernel::inst::Load>(stmt);
      if (!load || !load->mask.empty() ||
          lowered.program.buffers[std::size_t(load->from.buffer)].space != kernel::Space::Argument)
        return;
      ++whole;
      const Expr lane = kernel::lane_variable(int(s.knob("lanes", 1)));
      EXPECT_EQ((load->from.index - lane).divisor() % s.knob("lanes", 1), 0)
          << to_string(s) << ": " << load->from.index.str();
    });
    EXPECT_GE(whole, 1) << to_string(s);
  }
}

TEST(Scans, OfManyRowsAreNotCut) {
  for (const Shape& shape : {Shape{512, 4096}, Shape{4096, 512}}) {
    const Graph g = running_mean(shape, 1);
    for (const Target& target : {testing::test_targets()[0], testing::test_gpu()}) {
      const kernel::Region region = testing::regions_of(g, target).at(0);
      const Schedule s = generator_of(target).space(region, target).at(0);
      EXPECT_EQ(s.knob("piece", 0), 0) << to_string(s);
      EXPECT_EQ(lower_greedily(region, target).schedule.generator, generator_of(target).name());
    }
  }
}

/// A thread would take longer for a row of which neighbours lie apart than a barrier of the grid.
TEST(Scans, OfLongRowsThatLieApartAreCutOnAGpuThoughFew) {
  const Target gpu = testing::test_gpu();
  for (const auto& [length, cut] :
       std::vector<std::pair<std::int64_t, bool>>{{428, true}, {100, false}}) {
    const Graph g = running_mean({4, length, 25}, 1);
    const kernel::Region region = testing::regions_of(g, gpu).at(0);
    const Schedule s = generator_of(gpu).space(region, gpu).at(0);
    EXPECT_EQ(s.knob("piece", 0) > 0, cut) << to_string(s);
  }
}

TEST(Scans, WhatTheyDoNotTakeIsRefusedWithAReason) {
  const Target cpu = testing::test_targets()[0], gpu = testing::test_gpu();
  Graph g = running_mean({64, 100}, 1);
  const kernel::Region region = testing::regions_of(g, cpu).at(0);
  Graph sum;
  sum.outputs = {sum.reduce(Op::ReduceSum, sum.input("x", DType::F32, {64, 100}), {1})};
  const kernel::Region no_scan = testing::regions_of(sum, cpu).at(0);
  for (const Target& target : {cpu, gpu}) {
    const kernel::Generator& generator = generator_of(target);
    EXPECT_TRUE(generator.space(no_scan, target).empty());
    EXPECT_EQ(generator.lower(no_scan, with(generator, {}), target).reason,
              "it has a reduction or a sort");
    EXPECT_EQ(generator.lower(region, with(generator, {{"mr", 2}}), target).reason,
              generator.name() + " has no parameter mr");
    EXPECT_EQ(generator.lower(region, with(generator, {{"piece", -1}}), target).reason,
              "piece=-1 is not one of 0, 1 ... 1073741824");
  }
  const kernel::Generator& generator = generator_of(gpu);
  EXPECT_EQ(generator.lower(region, with(generator, {{"lanes", 3}}), gpu).reason,
            "lanes are no power of two");
  EXPECT_EQ(generator.lower(region, with(generator, {{"threads", 128}, {"group", 64}}), gpu).reason,
            "a row's threads are neither all of a block nor a power of two up to 32");
  EXPECT_EQ(
      generator.lower(region, with(generator, {{"threads", 64}, {"piece", 8}, {"onepass", 1}}), gpu)
          .reason,
      "in one pass, a piece is what a block's threads have at a time");
  EXPECT_EQ(generator.lower(region, with(generator, {{"onepass", 1}}), gpu).reason,
            "one pass takes a known number of pieces, each by a whole block");
  EXPECT_EQ(
      generator.lower(region, with(generator, {{"threads", 1024}, {"copies", 2}}), gpu).reason,
      "more tiles of warps than a warp can scan");
}

} // namespace
} // namespace egret
