// Taking a region apart into independent ones, and putting them together.
#include "egret/error.h"
#include "kernel/families.h"
#include "kernel/parts.h"
#include "kernel/serialize.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <functional>

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

/// x times a number that comes by value.
Region scaled(std::int64_t size, DType type = DType::F32) {
  Graph g;
  const NodeId x = g.input("x", type, {size}), by = g.input("by", type, {}, true);
  g.outputs = {g.binary(Op::Mul, x, g.broadcast(by, {size}))};
  return testing::regions_of(g, testing::test_targets()[0]).at(0);
}

Region sum_of(std::int64_t rows, std::int64_t columns) {
  Graph g;
  g.outputs = {g.reduce(Op::ReduceSum, g.input("x", DType::F32, {rows, columns}), {1})};
  return testing::regions_of(g, testing::test_targets()[0]).at(0);
}

int append_operand(Region& whole, const Operand& operand) {
  whole.operands.push_back(operand);
  return static_cast<int>(whole.operands.size()) - 1;
}

void append(Region& whole, const Region& part) {
  std::vector<int> operands;
  for (const Operand& operand : part.operands)
    operands.push_back(append_operand(whole, operand));
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

std::size_t statements_of(const KernelProgram& program) {
  std::size_t count = 0;
  each_statement(program.body, [&](const Stmt&) { ++count; });
  return count;
}

/// Few parts have codes of their own by choice only.
Schedule sharing(const Target& target) {
  Schedule s;
  s.generator = "batch";
  if (target.is_gpu())
    s.knobs["threads"] = 256;
  return s;
}

TEST(Batch, PartsOfOneFormShareOneCode) {
  Region few = map_of({2}), many = map_of({2});
  for (const std::int64_t size : {3, 900}) {
    append(few, map_of({size}));
    append(many, map_of({size}));
  }
  for (std::int64_t i = 3; i < 100; ++i)
    append(many, map_of({2 + i * 37 % 890}));
  append(few, sum_of(7, 300));
  append(many, sum_of(7, 300));
  for (const Target& target : {testing::test_targets()[0], testing::test_gpu()}) {
    const Chosen small{sharing(target),
                       batch_generator().lower(few, sharing(target), target).program};
    const Chosen large = lower_greedily(many, target);
    ASSERT_EQ(large.schedule.generator, "batch");
    ASSERT_EQ(large.program.groups.size(), 1u);
    EXPECT_EQ(large.program.groups[0].problems(), 100u);
    EXPECT_EQ(statements_of(large.program), statements_of(small.program));
    // An item for each block's worth of a problem, or for what is worth a CPU's worker.
    EXPECT_GE(large.program.groups[0].begin.back(), 100);
    EXPECT_LE(large.program.groups[0].begin.back(), 400);
  }
}

TEST(Batch, NumbersByValueMayDifferByProblem) {
  Region own = scaled(4), shared = scaled(4);
  append(own, scaled(9));
  add_part(shared, scaled(9), std::vector{append_operand(shared, scaled(9).operands[0]), 1});
  for (const Target& target : {testing::test_targets()[0], testing::test_gpu()}) {
    const Lowered a = batch_generator().lower(own, sharing(target), target);
    ASSERT_TRUE(a.ok) << a.reason;
    ASSERT_EQ(a.program.groups.size(), 1u);
    EXPECT_EQ(a.program.groups[0].scalars, (std::vector<std::vector<int>>{{0, 1}}));
    EXPECT_NE(print(a.program).find("problem's s0"), std::string::npos) << print(a.program);
    const Lowered b = batch_generator().lower(shared, sharing(target), target);
    ASSERT_TRUE(b.ok) << b.reason;
    ASSERT_EQ(b.program.groups.size(), 1u);
    EXPECT_TRUE(b.program.groups[0].scalars.empty()) << "the same number in all problems";
  }
}

TEST(Batch, LongCodesDoNotStandApart) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {64});
  for (int i = 0; i < 200; ++i)
    x = g.binary(Op::Add, g.unary(Op::Cos, x), g.broadcast(g.constant(DType::F32, i), {64}));
  g.outputs = {x};
  const Region longer = testing::regions_of(g, testing::test_targets()[0]).at(0);
  Region whole = longer;
  for (int i = 1; i < 16; ++i)
    append(whole, longer);
  const Target target = testing::test_gpu();
  Schedule s = sharing(target);
  EXPECT_TRUE(batch_generator().lower(whole, s, target).ok);
  s.knobs["apart"] = 1;
  const Lowered apart = batch_generator().lower(whole, s, target);
  EXPECT_FALSE(apart.ok);
  EXPECT_EQ(apart.reason, "codes of their own for all parts are too long");
  EXPECT_EQ(lower_greedily(whole, target).program.groups.size(), 1u);
}

TEST(Batch, PartsWithConstantSizesMayStandApart) {
  Region whole = map_of({4});
  append(whole, map_of({9}));
  Schedule s;
  s.generator = "batch";
  const Target target = testing::test_targets()[0];
  EXPECT_EQ(batch_generator().lower(whole, s, target).program.groups.size(), 1u);
  s.knobs["apart"] = 1;
  EXPECT_TRUE(batch_generator().lower(whole, s, target).program.groups.empty());
}

// Each problem would need a part of it of its own.
TEST(Batch, PartsThatShareMemoryOfTheLaunchAreNoGroup) {
  Region whole = sum_of(3, 5000);
  append(whole, sum_of(4, 70000));
  const Chosen chosen = lower_greedily(whole, testing::test_gpu());
  EXPECT_EQ(chosen.schedule.generator, "batch");
  for (const Buffer& b : chosen.program.buffers)
    EXPECT_TRUE(chosen.program.groups.empty() || b.space != Space::Workspace);
}

/// The program of a group of three, for breaking.
KernelProgram grouped() {
  Region whole = scaled(4);
  append(whole, scaled(9));
  append(whole, scaled(700));
  const Target target = testing::test_targets()[0];
  return batch_generator().lower(whole, sharing(target), target).program;
}

void expect_refused(const std::function<void(KernelProgram&)>& change, std::string_view message) {
  KernelProgram program = grouped();
  change(program);
  try {
    verify(program);
    ADD_FAILURE() << "not refused: " << message;
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
  }
}

TEST(Groups, EachPromiseIsChecked) {
  verify(grouped());
  const auto group = [](KernelProgram& p) -> ProblemGroup& { return p.groups.at(0); };
  expect_refused([&](auto& p) { group(p).begin[1] = group(p).begin[3] + 1; }, "not in a row");
  expect_refused([&](auto& p) { group(p).begin.clear(); }, "not in a row");
  expect_refused([&](auto& p) { group(p).values.pop_back(); }, "a group of");
  expect_refused([&](auto& p) { group(p).values[0][1] = 12345; }, "is 12345 in a problem");
  expect_refused([&](auto& p) { group(p).values[0].pop_back(); }, "is no size of the 3 problems");
  expect_refused([&](auto& p) { p.dims.push_back(group(p).sizes[0]); }, "is no size of");
  expect_refused([&](auto& p) { group(p).arguments[0][2] = 99; }, "no buffer 99");
  expect_refused([&](auto& p) { group(p).arguments[0][2] = group(p).buffers[0]; },
                 "cannot be buffer");
  expect_refused([&](auto& p) { group(p).arguments[0].pop_back(); }, "of 3 problems is in 2");
  expect_refused(
      [&](auto& p) {
        group(p).buffers.pop_back();
        group(p).arguments.pop_back();
      },
      "outside of its problems");
  expect_refused([&](auto& p) { group(p).scalars[0].pop_back(); },
                 "a scalar of 3 problems is in 2");
  expect_refused([&](auto& p) { group(p).scalars[0][1] = 3; }, "scalar 3 cannot be one");
  expect_refused([&](auto& p) { group(p).scalars.clear(); }, "no scalar 0 of a problem");
  expect_refused(
      [&](auto& p) {
        p.scalars.push_back(DType::U8);
        group(p).scalars[0][2] = 3;
      },
      "scalar 3 cannot be one");
  expect_refused([&](auto& p) { p.groups.clear(); }, "no group 0");
  expect_refused(
      [&](auto& p) {
        InProblem* inner = nullptr;
        each_statement(p.body, [&](Stmt& s) {
          if (auto* one = get_if<InProblem>(s))
            inner = one;
        });
        inner->body = {InProblem{*inner}};
      },
      "within a problem");
}

TEST(Groups, ReadBackFromBytesAndAreInTheText) {
  const KernelProgram program = grouped();
  const KernelProgram read = program_of_bytes(to_bytes(program));
  EXPECT_EQ(hash_of(read), hash_of(program));
  EXPECT_EQ(print(read), print(program));
  EXPECT_NE(print(program).find("group 0 of 3 problems"), std::string::npos) << print(program);
  KernelProgram other = program;
  ++other.groups[0].values[0][1];
  EXPECT_NE(hash_of(other), hash_of(program));
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
