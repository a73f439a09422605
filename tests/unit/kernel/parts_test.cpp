// Taking a region apart into independent ones, and putting them together.
#include "kernel/families.h"
#include "kernel/parts.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

namespace egret::kernel {
namespace {

using ir::Graph;
using ir::NodeId;

/// cos(x) over a box.
Region map_of(const Shape& shape) {
  Graph g;
  g.outputs = {g.unary(Op::Cos, g.input("x", DType::F32, shape))};
  return testing::regions_of(g, testing::test_targets()[0]).at(0);
}

Region sum_of(std::int64_t rows, std::int64_t columns) {
  Graph g;
  g.outputs = {g.reduce(Op::ReduceSum, g.input("x", DType::F32, {rows, columns}), {1})};
  return testing::regions_of(g, testing::test_targets()[0]).at(0);
}

void append(Region& whole, const Region& part) {
  std::vector<int> operands;
  for (const Operand& operand : part.operands) {
    operands.push_back(static_cast<int>(whole.operands.size()));
    whole.operands.push_back(operand);
  }
  add_part(whole, part, operands);
}

TEST(Parts, ComeBackAsTheyWere) {
  const Region parts[] = {map_of({10}), sum_of(7, 300), map_of({5, 3})};
  Region whole = parts[0];
  append(whole, parts[1]);
  append(whole, parts[2]);
  verify(whole);
  const std::vector<Part> back = parts_of(whole);
  ASSERT_EQ(back.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(hash_of(back[i].region), hash_of(parts[i]));
    EXPECT_EQ(back[i].operands, std::vector{static_cast<int>(i)});
    EXPECT_EQ(back[i].outputs, std::vector{static_cast<int>(i)});
  }
}

TEST(Parts, AStageThatReadsAnotherIsOfItsPart) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {8, 32});
  const NodeId row = g.reduce(Op::ReduceSum, x, {1});
  g.outputs = {g.binary(Op::Mul, x, g.expand(g.reshape(row, {8, 1}), {8, 32}))};
  const Region rows = testing::regions_of(g, testing::test_targets()[0]).at(0);
  ASSERT_GT(rows.stages.size(), 1u);
  EXPECT_FALSE(has_parts(rows));
}

// Without an axis nothing tells apart whose element is read and written first.
TEST(Parts, StagesWithoutAxesAreOnePart) {
  Region whole = map_of({});
  add_part(whole, map_of({}), std::vector{0});
  EXPECT_FALSE(has_parts(whole));
  append(whole, map_of({4}));
  EXPECT_EQ(parts_of(whole).size(), 2u);
}

TEST(Batch, TakesAnotherScheduleWhereTheUsualOneWaits) {
  const Target target = testing::test_targets()[0];
  const Region split = sum_of(1, 1 << 20);
  EXPECT_GT(lower_greedily(split, target).schedule.split_reduce, 1);
  EXPECT_TRUE(lower_part(split, target).ok);
}

TEST(Batch, RefusesPartsWithoutALoop) {
  const Lowered nothing = lower_part(map_of({0}), testing::test_targets()[0]);
  EXPECT_FALSE(nothing.ok);
  EXPECT_EQ(nothing.reason, "its work is not one loop over the workers");
}

TEST(Batch, RefusesMoreArgumentsThanALaunchHas) {
  Region whole = map_of({4});
  for (int i = 1; i < 300; ++i)
    append(whole, map_of({4 + i % 5}));
  Schedule s;
  s.generator = "batch";
  EXPECT_TRUE(batch_generator().lower(whole, s, testing::test_targets()[0]).ok);
  s.knobs["threads"] = 256;
  const Lowered on_gpu = batch_generator().lower(whole, s, testing::test_gpu());
  EXPECT_FALSE(on_gpu.ok);
  EXPECT_EQ(on_gpu.reason, "more arguments than a launch can have");
}

} // namespace
} // namespace egret::kernel
