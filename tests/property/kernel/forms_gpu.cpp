// Programs of a GPU's generators through the interpreter, which runs threads in turns and watches
// for races: every form at small sizes, and regions of random graphs.
#include "kernel/generator.h"
#include "support/random_graph.h"
#include "support/region_forms.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <cstring>

namespace egret {
namespace {

class GpuForms : public ::testing::TestWithParam<testing::FormCase> {};

TEST_P(GpuForms, SchedulesAgreeWithTheReference) {
  std::uint64_t seed = 0;
  for (auto [m, n] : GetParam().sizes) {
    ir::Graph g;
    GetParam().make(g, m, n);
    // All schedules of one size, the usual ones of the others.
    const bool all = m * n < 2000 && ++seed % 5 == 0;
    for (const auto& c : testing::region_cases(g, testing::inputs_of(g, seed, false))) {
      std::string wrong = testing::check_generators(c, testing::test_gpu(),
                                                    {.workers = int(1 + seed % 3)}, all ? 1000 : 1);
      ASSERT_TRUE(wrong.empty()) << m << "," << n << ": " << wrong;
    }
  }
}

TEST_P(GpuForms, SpecialNumbersAgreeWithTheReference) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    ir::Graph g;
    GetParam().make(g, 3, 37);
    for (const auto& c : testing::region_cases(g, testing::inputs_of(g, seed, true))) {
      std::string wrong = testing::check_generators(c, testing::test_gpu(), {}, 1);
      ASSERT_TRUE(wrong.empty()) << "seed " << seed << ": " << wrong;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuForms, ::testing::ValuesIn(testing::region_forms()),
                         [](const auto& info) { return std::string(info.param.name); });

kernel::Schedule ahead(std::int64_t threads, std::int64_t keep, std::int64_t run) {
  kernel::Schedule s;
  s.generator = "gpu_rows";
  s.knobs = {{"threads", threads}, {"group", threads}, {"keep", keep}, {"run", run}};
  return s;
}

const kernel::Generator& rows_generator() {
  return testing::generator_named("gpu_rows", testing::test_gpu());
}

/// The sum of exponentials above the row's maximum, and the softmax.
ir::Graph exponentials(DType type, std::int64_t rows, std::int64_t columns) {
  ir::Graph g;
  const Shape shape{rows, columns};
  const ir::NodeId x = g.input("x", type, shape);
  auto along = [&](ir::NodeId r) { return g.expand(g.reshape(r, {rows, 1}), shape); };
  const ir::NodeId minus = g.broadcast(g.constant(type, -1.0), shape);
  const ir::NodeId top = along(g.reduce(Op::ReduceMax, x, {1}));
  const ir::NodeId e = g.unary(Op::Exp, g.binary(Op::Add, x, g.binary(Op::Mul, top, minus)));
  const ir::NodeId sum = g.reduce(Op::ReduceSum, e, {1});
  g.outputs = {sum, g.binary(Op::Div, e, along(sum))};
  return g;
}

TEST(GpuRows, FetchedAheadAgreeWithTheReference) {
  const kernel::Target target = testing::test_gpu();
  for (DType type : {DType::F32, DType::BF16})
    for (auto [rows, columns] : {std::pair{7, 256}, {6, 264}, {1, 1024}, {5, 8}})
      for (bool special : {false, true}) {
        const ir::Graph g = exponentials(type, rows, columns);
        for (const auto& c : testing::region_cases(g, testing::inputs_of(g, 5, special)))
          for (std::int64_t keep : {0, 1})
            for (std::int64_t run : {2, 3}) {
              auto wrong =
                  testing::check_schedule(testing::aligned_for(c, target), rows_generator(),
                                          ahead(32, keep, run), target, {.workers = 2}, true);
              ASSERT_TRUE(wrong.empty()) << wrong;
            }
      }
}

TEST(GpuRows, ViewsOfOneElementKeepTheirHoles) {
  const kernel::Target target = testing::test_gpu();
  for (const bool whole_first : {false, true}) {
    ir::Graph g;
    const ir::NodeId x = g.input("x", DType::F32, {6, 256});
    const ir::NodeId part =
        g.pad(g.shrink(x, {0, 0}, {6, 100}), {0, 0}, {0, 156}, Scalar::of(DType::F32, 3.0));
    const ir::NodeId both = whole_first ? g.binary(Op::Add, x, part) : g.binary(Op::Add, part, x);
    const ir::NodeId top = g.reduce(Op::ReduceMax, both, {1});
    g.outputs = {g.binary(Op::Add, both, g.expand(g.reshape(top, {6, 1}), {6, 256}))};
    for (const auto& c : testing::region_cases(g, testing::inputs_of(g, 5, false)))
      for (std::int64_t keep : {0, 1, 2})
        for (std::int64_t run : {0, 2})
          ASSERT_EQ(testing::check_schedule(testing::aligned_for(c, target), rows_generator(),
                                            ahead(32, keep, run), target, {.workers = 2}, false),
                    "");
  }
}

TEST(GpuRows, TurnsInALoopAgreeWithTheReference) {
  const kernel::Target target = testing::test_gpu();
  for (std::int64_t run : {0, 2})
    for (std::int64_t roll : {1, 2, 3})
      for (std::int64_t columns : {256, 1032, 1280}) {
        const ir::Graph g = exponentials(DType::BF16, 5, columns);
        kernel::Schedule s = ahead(32, 1, run);
        s.knobs["roll"] = roll;
        for (const auto& c : testing::region_cases(g, testing::inputs_of(g, 5, roll == 2)))
          ASSERT_EQ(testing::check_schedule(testing::aligned_for(c, target), rows_generator(), s,
                                            target, {.workers = 2}, true),
                    "");
      }
}

TEST(GpuRows, ShiftedRowsAgreeWithTheReference) {
  const kernel::Target target = testing::test_gpu();
  for (DType type : {DType::F32, DType::BF16})
    for (std::int64_t columns : {67, 129, 258, 1021})
      for (auto [threads, group] : {std::pair{32, 32}, {96, 96}, {64, 8}, {64, 32}})
        for (bool special : {false, true}) {
          const ir::Graph g = exponentials(type, 9, columns);
          kernel::Schedule s;
          s.generator = "gpu_rows";
          s.knobs = {
              {"threads", threads}, {"group", group}, {"keep", 2}, {"shift", 1}, {"copies", 2}};
          for (const auto& c : testing::region_cases(g, testing::inputs_of(g, 5, special))) {
            const auto aligned = testing::aligned_for(c, target);
            const auto lowered = rows_generator().lower(aligned.region, s, target);
            if (columns % 2 == 0 && type == DType::F32) {
              EXPECT_EQ(lowered.reason,
                        "rows begin where memory is aligned, or do not begin alike");
              continue;
            }
            ASSERT_TRUE(lowered.ok) << lowered.reason;
            ASSERT_EQ(
                testing::check_schedule(aligned, rows_generator(), s, target, {.workers = 2}, true),
                "");
          }
        }
}

TEST(GpuRows, GroupsOfAnySizeAgreeWithTheReference) {
  const kernel::Target target = testing::test_gpu();
  for (DType type : {DType::F32, DType::BF16})
    for (std::int64_t columns : {3, 7, 35, 64})
      for (std::int64_t group : {1, 2, 8, 32})
        for (std::int64_t resident : {0, 1}) {
          ir::Graph g = exponentials(type, 37, columns);
          g.outputs.push_back(g.reduce(Op::ReduceArgMax, ir::NodeId{0}, {1}));
          kernel::Schedule s;
          s.generator = "gpu_rows";
          s.knobs = {{"threads", 64}, {"group", group}, {"keep", 0}, {"resident", resident}};
          for (const auto& c : testing::region_cases(g, testing::inputs_of(g, 5, resident == 1)))
            ASSERT_EQ(testing::check_schedule(testing::aligned_for(c, target), rows_generator(), s,
                                              target, {.workers = 2}, true),
                      "")
                << to_string(s);
        }
}

/// The sum of what rows hold at their labels, of which several are no place of a row.
TEST(GpuRows, LabelsBeyondTheRowAreNowhere) {
  for (std::int64_t columns : {24, 37, 520}) {
    ir::Graph g;
    const Shape shape{6, columns};
    const ir::NodeId x = g.input("x", DType::F32, shape), label = g.input("label", DType::I64, {6});
    const ir::NodeId hot = g.binary(Op::Eq, g.expand(g.reshape(label, {6, 1}), shape),
                                    g.expand(g.reshape(g.iota(columns), {1, columns}), shape));
    g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Mul, x, g.cast(hot, DType::F32)), {1})};
    auto inputs = testing::inputs_of(g, 3, false);
    const std::int64_t labels[] = {
        3, -1, (std::int64_t(1) << 32) + 3, columns - 1, std::int64_t(INT32_MIN) * 4 + 2, columns};
    std::memcpy(inputs.at(1).bytes.data(), labels, sizeof labels);
    for (const auto& c : testing::region_cases(g, inputs)) {
      EXPECT_EQ(testing::check_generators(c, testing::test_gpu()), "");
      for (const kernel::Target& target : testing::test_targets())
        EXPECT_EQ(testing::check_generators(c, target), "");
    }
  }
}

TEST(GpuRows, WhatCannotBeFetchedAheadIsRefused) {
  const kernel::Target target = testing::test_gpu();
  auto reason = [&](std::int64_t columns, kernel::Schedule s) {
    const ir::Graph g = exponentials(DType::BF16, 4, columns);
    const auto cases = testing::region_cases(g, testing::inputs_of(g, 1, false));
    return rows_generator()
        .lower(testing::aligned_for(cases.at(0), target).region, s, target)
        .reason;
  };
  EXPECT_EQ(reason(64, ahead(32, 0, 2)), "");
  EXPECT_EQ(reason(63, ahead(32, 0, 2)),
            "there is nothing that asynchronous copies could fetch ahead");
  EXPECT_EQ(reason(64, ahead(32, 2, 2)),
            "rows are fetched ahead by whole blocks, in order, and are kept");
  EXPECT_EQ(reason(64, ahead(32, 0, -1)), "run=-1 is not one of 0, 1 ... 4096");
}

void check_random_forms(std::uint64_t first, std::uint64_t count, bool symbolic) {
  testing::RandomGraphOptions options;
  options.max_elements = 300;
  options.symbolic = symbolic;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    std::vector<testing::RegionCase> cases;
    try {
      ir::Graph graph = testing::random_graph(seed, options);
      cases = testing::region_cases(
          graph, testing::random_inputs(graph, seed, {.special = seed % 4 == 0}));
    } catch (const Error& e) {
      ASSERT_TRUE(symbolic) << "seed " << seed << ": " << e.what();
      continue;
    }
    for (auto& c : cases) {
      if (seed % 2)
        testing::take_over_operands(c.region);
      std::string wrong = testing::check_generators(
          c, testing::test_gpu(), {.workers = 1 + int(seed % 3), .in_place = true}, 1);
      ASSERT_TRUE(wrong.empty()) << "seed " << seed << ": " << wrong;
    }
  }
}

TEST(GpuRandomRegions, AgreeWithTheReference) {
  check_random_forms(1, 40, false);
}

TEST(GpuRandomRegions, SymbolicSizesAgreeWithTheReference) {
  check_random_forms(3000, 30, true);
}

} // namespace
} // namespace egret
