// Sums that go along with the maximum that scales them, and sums with one term: what programs of
// one pass give at special numbers, how often they read memory, and what is refused.
#include "backend/reference/reference.h"
#include "compiler/canonical.h"
#include "compiler/compile.h"
#include "compiler/prepare_outputs.h"
#include "compiler/regions.h"
#include "compiler/streaming.h"
#include "egret/passes.h"
#include "kernel/families.h"
#include "kernel/label_terms.h"
#include "kernel/passes.h"
#include "support/null_device.h"
#include "support/region_runner.h"
#include "support/targets.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace egret {
namespace {

using backend::reference::HostArray;
using ir::Graph;
using ir::NodeId;
using kernel::Generator;
using kernel::Schedule;
using kernel::Target;

constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                 kNoNumber = std::numeric_limits<double>::quiet_NaN();

class Formula {
public:
  Formula(DType dtype, std::int64_t rows, std::int64_t columns)
      : shape_{rows, columns}, x_(g.input("x", dtype, shape_)), wide_(g.cast(x_, DType::F32)) {}

  NodeId along(NodeId of_rows) { return g.expand(g.reshape(of_rows, {shape_[0], 1}), shape_); }
  NodeId minus(NodeId a, NodeId b) {
    return g.binary(Op::Add, a,
                    g.binary(Op::Mul, b, g.broadcast(g.constant(DType::F32, -1.0), shape_)));
  }
  NodeId sum(NodeId a) { return g.reduce(Op::ReduceSum, a, {1}); }
  NodeId low() { return minus(wide_, along(g.reduce(Op::ReduceMax, wide_, {1}))); }
  NodeId hit() {
    const NodeId label = g.input("label", DType::I64, {shape_[0]});
    return g.binary(Op::Eq, along(label),
                    g.expand(g.reshape(g.iota(shape_[1]), {1, shape_[1]}), shape_));
  }

  Graph g;
  Shape shape_;
  NodeId x_, wide_;
};

/// The logarithm of the probability of each row's label. `as_number`: the others are multiplied by
/// 0, else left out.
Graph log_probability(DType dtype, std::int64_t rows, std::int64_t columns, bool as_number) {
  Formula f(dtype, rows, columns);
  Graph& g = f.g;
  const NodeId low = f.low(), hit = f.hit();
  const NodeId logs = f.minus(low, f.along(g.unary(Op::Log, f.sum(g.unary(Op::Exp, low)))));
  g.outputs = {
      f.sum(as_number ? g.binary(Op::Mul, logs, g.cast(hit, DType::F32))
                      : g.select(hit, logs, g.broadcast(g.constant(DType::F32, 0.0), f.shape_)))};
  return g;
}

Graph softmax_region(DType dtype, std::int64_t rows, std::int64_t columns) {
  Formula f(dtype, rows, columns);
  const NodeId e = f.g.unary(Op::Exp, f.low());
  f.g.outputs = {f.g.binary(Op::Div, e, f.along(f.sum(e)))};
  return f.g;
}

/// Rows less their mean over the root of their variance. `of_others`: about half of the mean.
Graph layer_norm(DType dtype, std::int64_t rows, std::int64_t columns, bool of_others = false) {
  Formula f(dtype, rows, columns);
  Graph& g = f.g;
  const auto mean = [&](NodeId a) {
    return g.binary(Op::Mul, f.sum(a),
                    g.broadcast(g.constant(DType::F32, 1.0 / double(columns)), {rows}));
  };
  NodeId middle = mean(f.wide_);
  if (of_others)
    middle = g.binary(Op::Mul, middle, g.broadcast(g.constant(DType::F32, 0.5), {rows}));
  const NodeId apart = f.minus(f.wide_, f.along(middle));
  const NodeId variance = mean(g.binary(Op::Mul, apart, apart));
  const NodeId root = g.unary(
      Op::Sqrt, g.binary(Op::Add, variance, g.broadcast(g.constant(DType::F32, 1e-5), {rows})));
  g.outputs = {g.binary(Op::Div, apart, f.along(root)), variance};
  return g;
}

/// Rows of what can go wrong with a running maximum, and labels for each.
std::vector<HostArray> special_inputs(DType dtype, std::int64_t columns) {
  struct Row {
    std::function<double(std::int64_t)> at;
    std::int64_t label;
  };
  const auto wave = [](std::int64_t j) { return 3 * std::sin(double(j)); };
  const std::vector<Row> rows = {
      {wave, 3},
      {[](std::int64_t) { return 2.5; }, 0},
      {[](std::int64_t j) { return double(j) * 0.25; }, columns - 1}, // grows to the end
      {[](std::int64_t j) { return -8.0 * double(j); }, 2},
      {[=](std::int64_t j) { return j == 5 ? -kInfinity : wave(j); }, 5},
      {[=](std::int64_t j) { return j == 5 ? -kInfinity : wave(j); }, 4},
      {[=](std::int64_t j) { return j < columns - 1 ? -kInfinity : 1.0; }, columns - 1},
      {[](std::int64_t) { return -kInfinity; }, 1},
      {[=](std::int64_t j) { return j == columns / 2 ? kInfinity : wave(j); }, columns / 2},
      {[=](std::int64_t j) { return j == 7 || j == 1 ? kInfinity : wave(j); }, 2},
      {[=](std::int64_t j) { return j == columns - 2 ? kNoNumber : wave(j); }, 1},
      {wave, -1},
      {wave, columns},
      {wave, (std::int64_t(1) << 32) + 1},
      {[=](std::int64_t j) { return j == 3 ? -kInfinity : wave(j); }, -100},
  };
  std::vector<double> x;
  std::vector<std::int64_t> labels;
  for (const Row& row : rows) {
    for (std::int64_t j = 0; j < columns; ++j)
      x.push_back(row.at(j));
    labels.push_back(row.label);
  }
  const auto count = std::int64_t(rows.size());
  std::vector<HostArray> inputs{HostArray(dtype, {count, columns}, x),
                                HostArray(DType::I64, {count})};
  std::memcpy(inputs[1].bytes.data(), labels.data(), labels.size() * sizeof labels[0]);
  return inputs;
}

constexpr std::int64_t kSpecialRows = 15;

Schedule schedule(const std::string& text) {
  return kernel::parse_schedule(text);
}

const Generator& gpu_rows() {
  return kernel::gpu_rows_generator();
}

/// Every region of the graph with each of the schedules.
void expect_right(const Graph& g, const std::vector<HostArray>& inputs, const Generator& generator,
                  const Target& target, const std::vector<std::string>& schedules) {
  for (const auto& c : testing::region_cases(g, std::span(inputs).first(g.inputs().size())))
    for (const std::string& text : schedules)
      ASSERT_EQ(testing::check_schedule(testing::aligned_for(c, target), generator, schedule(text),
                                        target, {.workers = 2}, true),
                "");
}

TEST(Online, AgreesWithTheFormulaAtSpecialNumbersOnACpu) {
  for (const Target& target : testing::test_targets())
    for (DType dtype : {DType::F32, DType::BF16})
      for (std::int64_t columns : {8, 53, 128}) {
        const auto inputs = special_inputs(dtype, columns);
        const std::vector<std::string> all = {"rows copies=1 online=1", "rows copies=4 online=1",
                                              "rows online=1 rows=2"};
        for (bool as_number : {false, true})
          expect_right(log_probability(dtype, kSpecialRows, columns, as_number), inputs,
                       kernel::rows_generator(), target, all);
        expect_right(softmax_region(dtype, kSpecialRows, columns), inputs, kernel::rows_generator(),
                     target, all);
      }
}

TEST(Online, AgreesWithTheFormulaAtSpecialNumbersOnAGpu) {
  const Target target = testing::test_gpu();
  for (DType dtype : {DType::F32, DType::BF16})
    for (std::int64_t columns : {8, 104, 264}) {
      const auto inputs = special_inputs(dtype, columns);
      std::vector<std::string> all = {
          "gpu_rows copies=2 group=32 keep=2 online=1 threads=32",
          "gpu_rows group=8 keep=0 online=1 threads=64",
          "gpu_rows group=64 keep=1 online=1 threads=64 @order=drawn/1",
      };
      expect_right(softmax_region(dtype, kSpecialRows, columns), inputs, gpu_rows(), target, all);
      if (columns == 264)
        all.push_back("gpu_rows group=32 keep=2 online=1 threads=32 @split_reduce=2");
      for (bool as_number : {false, true})
        expect_right(log_probability(dtype, kSpecialRows, columns, as_number), inputs, gpu_rows(),
                     target, all);
    }
  // Rows that begin anywhere.
  const auto inputs = special_inputs(DType::BF16, 129);
  expect_right(log_probability(DType::BF16, kSpecialRows, 129, false), inputs, gpu_rows(), target,
               {"gpu_rows copies=2 group=32 keep=2 online=1 shift=1 threads=32"});
}

/// Elements that a program loads from its first argument: sizes are constants.
std::int64_t loaded(const kernel::KernelProgram& program, const kernel::Block& block,
                    std::int64_t times) {
  std::int64_t n = 0;
  for (const kernel::Stmt& s : block) {
    const auto* load = made_by<kernel::inst::Load>(s);
    if (load && load->from.buffer == 0)
      n += times * get_if<kernel::Let>(s)->inst.type.lanes;
    std::int64_t turns = 1;
    if (const auto* loop = get_if<kernel::For>(s))
      turns =
          (loop->end.value() - loop->begin.value() + loop->step.value() - 1) / loop->step.value();
    each_block(s, [&](const kernel::Block& inner) { n += loaded(program, inner, times * turns); });
  }
  return n;
}

TEST(Online, ReadsTheLogitsOfALossOnce) {
  constexpr std::int64_t kRows = 64, kColumns = 1 << 20; // a row is larger than the cache
  const Target target = testing::test_targets()[0];
  for (bool as_number : {false, true}) {
    const auto regions =
        testing::regions_of(log_probability(DType::F32, kRows, kColumns, as_number), target);
    ASSERT_EQ(regions.size(), 1u);
    const auto chosen = kernel::lower_greedily(regions[0], target);
    EXPECT_EQ(chosen.schedule.generator, "rows");
    EXPECT_EQ(chosen.schedule.knob("online", 0), 1);
    // The element of the label once more.
    EXPECT_EQ(loaded(chosen.program, chosen.program.body, 1), kRows * (kColumns + 1));
  }
}

TEST(Online, ReadsTheRowsOfASoftmaxTwice) {
  constexpr std::int64_t kRows = 64, kColumns = 1 << 20;
  const Target target = testing::test_targets()[0];
  const auto regions = testing::regions_of(softmax_region(DType::F32, kRows, kColumns), target);
  ASSERT_EQ(regions.size(), 1u);
  const auto chosen = kernel::lower_greedily(regions[0], target);
  EXPECT_EQ(chosen.schedule.knob("online", 0), 1);
  EXPECT_EQ(loaded(chosen.program, chosen.program.body, 1), 2 * kRows * kColumns);
}

std::string refusal(const Graph& g) {
  const Target target = testing::test_gpu();
  std::string reason;
  for (const kernel::Region& region : testing::regions_of(g, target)) {
    for (const Schedule& s : gpu_rows().space(region, target))
      EXPECT_EQ(s.knob("online", 0), 0);
    const auto lowered =
        gpu_rows().lower(region, schedule("gpu_rows keep=2 online=1 threads=32"), target);
    EXPECT_FALSE(lowered.ok);
    reason = lowered.reason;
  }
  return reason;
}

std::vector<HostArray> rows_with_means(DType dtype, std::int64_t columns) {
  const std::vector<std::function<double(std::int64_t)>> rows = {
      [](std::int64_t j) { return 3 * std::sin(double(j)); },
      [](std::int64_t) { return 2.5; },
      [](std::int64_t j) { return 1000 + double(j % 7); },
      [](std::int64_t j) { return j == 0 ? 1e6 : std::cos(double(j)); }, // the first one is far off
      [](std::int64_t j) { return j == 4 ? kInfinity : double(j); },
      [](std::int64_t j) { return j == 7 ? kNoNumber : double(j); },
      [](std::int64_t) { return 1e30; },
  };
  std::vector<double> x;
  for (const auto& row : rows)
    for (std::int64_t j = 0; j < columns; ++j)
      x.push_back(row(j));
  return {HostArray(dtype, {std::int64_t(rows.size()), columns}, x)};
}

TEST(Online, SpreadsAreMadeBesideTheirMeans) {
  for (DType dtype : {DType::F32, DType::BF16})
    for (std::int64_t columns : {8, 53, 128, 1100}) {
      const Graph g = layer_norm(dtype, 7, columns);
      for (const Target& target : testing::test_targets())
        expect_right(g, rows_with_means(dtype, columns), kernel::rows_generator(), target,
                     {"rows online=2", "rows online=2 copies=4", "rows online=2 rows=2 copies=2",
                      "rows online=2 keep=0", "rows online=2 keep=1000"});
      expect_right(g, rows_with_means(dtype, columns), gpu_rows(), testing::test_gpu(),
                   {"gpu_rows group=32 threads=64 keep=2 online=2",
                    "gpu_rows group=64 threads=64 keep=2 online=2 copies=2",
                    "gpu_rows group=32 threads=64 keep=2 online=2 copies=5",
                    "gpu_rows group=8 threads=64 keep=2 online=2"});
    }
  // Something else than the mean is subtracted.
  for (const auto& c :
       testing::region_cases(layer_norm(DType::F32, 7, 53, true), rows_with_means(DType::F32, 53)))
    EXPECT_EQ(kernel::rows_generator()
                  .lower(c.region, schedule("rows online=2"), testing::test_targets()[0])
                  .reason,
              "no sum goes along with its maximum or its mean");
}

/// A load that is awaited before the next one begins leaves memory idle: what an iteration reads
/// comes before what it makes of it, and one division does for all of it.
TEST(Online, AnIterationOfASpreadBeginsWithItsLoads) {
  Target target = testing::test_gpu();
  Formula f(DType::F32, 1, 1 << 20);
  const NodeId mean =
      f.g.binary(Op::Mul, f.sum(f.wide_), f.g.broadcast(f.g.constant(DType::F32, 0x1p-20), {1}));
  const NodeId apart = f.minus(f.wide_, f.along(mean));
  f.g.outputs = {f.sum(f.g.binary(Op::Mul, apart, apart))};
  const auto regions = testing::regions_of(f.g, target);
  ASSERT_EQ(regions.size(), 1u);
  const auto lowered = gpu_rows().lower(
      regions[0], schedule("gpu_rows group=64 threads=64 keep=2 online=2 copies=4"), target);
  ASSERT_TRUE(lowered.ok) << lowered.reason;
  const std::string text = print(lowered.program);
  const std::size_t begin = text.find("for i1");
  ASSERT_NE(begin, std::string::npos) << text;
  const std::string loop = text.substr(begin, text.find("r0 =", begin) - begin);
  std::size_t at = 0;
  for (int load = 0; load < 4; ++load) {
    at = loop.find(" load ", at + 1);
    ASSERT_NE(at, std::string::npos) << text;
  }
  EXPECT_LT(at, loop.find(" add ")) << text;
  EXPECT_EQ(loop.find(" load ", at + 1), std::string::npos) << text;
  EXPECT_EQ(loop.find(" div "), loop.rfind(" div ")) << text;
}

TEST(Online, RowsThatDoNotStayAreReadTwiceForANorm) {
  Target target = testing::test_targets()[0];
  target.l2_bytes = 256;
  const Graph g = layer_norm(DType::F32, 7, 128);
  const auto regions = testing::region_cases(g, rows_with_means(DType::F32, 128));
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(kernel::rows_generator().space(regions[0].region, target).at(0).knob("online", 0), 2);
  EXPECT_EQ(kernel::plan_passes(regions[0].region).count, 3);
  EXPECT_EQ(kernel::plan_passes(regions[0].region, false, kernel::Online::Spreads).count, 2);
}

// Where the only pass is that of a maximum and its sum, so is the arithmetic between them.
TEST(Online, ArithmeticBetweenAMaximumAndItsSumIsOfTheirPass) {
  Formula f(DType::F32, 7, 128);
  f.g.outputs = {f.sum(f.g.unary(Op::Exp, f.low()))};
  const auto regions = testing::region_cases(f.g, rows_with_means(DType::F32, 128));
  ASSERT_EQ(regions.size(), 1u);
  const kernel::Region& region = regions[0].region;
  const auto apart = kernel::flops_by_pass(region, kernel::plan_passes(region));
  const auto online =
      kernel::flops_by_pass(region, kernel::plan_passes(region, false, kernel::Online::Scaled));
  ASSERT_EQ(apart.size(), 2u);
  ASSERT_EQ(online.size(), 1u);
  EXPECT_GT(apart[1], 0);
  EXPECT_EQ(online[0], apart[0] + apart[1]);
}

TEST(Online, WhatOnlyResemblesIsRefused) {
  constexpr const char* kNothing = "no sum goes along with its maximum or its mean";
  { // exponentials without a maximum
    Formula f(DType::F32, 4, 4096);
    f.g.outputs = {f.sum(f.g.unary(Op::Exp, f.wide_))};
    EXPECT_EQ(refusal(f.g), kNothing);
  }
  { // another function of the difference
    Formula f(DType::F32, 4, 4096);
    f.g.outputs = {f.sum(f.g.unary(Op::Tanh, f.low()))};
    EXPECT_EQ(refusal(f.g), kNothing);
  }
  { // the maximum of something else
    Formula f(DType::F32, 4, 4096);
    const NodeId other = f.g.unary(Op::Sin, f.wide_);
    f.g.outputs = {f.sum(
        f.g.unary(Op::Exp, f.minus(f.wide_, f.along(f.g.reduce(Op::ReduceMax, other, {1})))))};
    EXPECT_EQ(refusal(f.g), kNothing);
  }
  { // the maximum as a factor of the terms
    Formula f(DType::F32, 4, 4096);
    const NodeId top = f.along(f.g.reduce(Op::ReduceMax, f.wide_, {1}));
    f.g.outputs = {f.sum(f.g.binary(Op::Mul, top, f.g.unary(Op::Exp, f.minus(f.wide_, top))))};
    EXPECT_EQ(refusal(f.g), kNothing);
  }
  { // a factor read from where the maximum says
    Formula f(DType::F32, 4, 4096);
    const NodeId top = f.along(f.g.reduce(Op::ReduceMax, f.wide_, {1})),
                 factor =
                     f.g.gather(f.g.input("table", DType::F32, {16}), f.g.cast(top, DType::I64), 0);
    f.g.outputs = {f.sum(f.g.binary(Op::Mul, factor, f.g.unary(Op::Exp, f.minus(f.wide_, top))))};
    EXPECT_EQ(refusal(f.g), kNothing);
  }
}

TEST(Picks, LeaveSumsThatHaveMoreTerms) {
  const auto changes = [](const std::function<NodeId(Formula&)>& make) {
    Formula f(DType::F32, 64, 64);
    f.g.outputs = {make(f), f.g.reduce(Op::ReduceMax, f.wide_, {1})};
    int changed = 0;
    for (const kernel::Region& region : testing::regions_of(f.g, testing::test_gpu())) {
      const kernel::Region picked = kernel::with_label_gathers(region);
      kernel::verify(picked);
      changed += hash_of(picked) != hash_of(region);
    }
    return changed;
  };
  const auto zero = [](Formula& f) {
    return f.g.broadcast(f.g.constant(DType::F32, 0.0), f.shape_);
  };
  EXPECT_EQ(changes([&](Formula& f) { return f.sum(f.g.select(f.hit(), f.wide_, zero(f))); }), 1);
  EXPECT_EQ(changes([&](Formula& f) { // all but one
              return f.sum(f.g.select(f.hit(), zero(f), f.wide_));
            }),
            0);
  EXPECT_EQ(changes([&](Formula& f) { // what is left out counts 1
              return f.sum(f.g.select(f.hit(), f.wide_,
                                      f.g.broadcast(f.g.constant(DType::F32, 1.0), f.shape_)));
            }),
            0);
  EXPECT_EQ(changes([&](Formula& f) { // from the label on
              const NodeId label = f.g.input("label", DType::I64, {64});
              const NodeId from = f.g.binary(
                  Op::Lt, f.along(label), f.g.expand(f.g.reshape(f.g.iota(64), {1, 64}), f.shape_));
              return f.sum(f.g.select(from, f.wide_, zero(f)));
            }),
            0);
}

// --- Products that are never stored

Target hopper() {
  Target t = testing::test_gpu();
  t.name = "sm_90a";
  testing::set_architecture(t, 90);
  t.block_shared_bytes = t.shared_bytes = 227 << 10;
  t.l2_bytes = t.l3_bytes = 4 << 10;
  return t;
}

/// Of each row's logits h w^T, rounded to the factors' type: the logarithm of the probability of
/// its label, and the largest logit. `smoothed`: and the sum of all logarithms.
Graph linear_loss(DType dtype, std::int64_t rows, std::int64_t classes, std::int64_t depth,
                  bool as_number, bool smoothed = false) {
  Graph g;
  const NodeId h = g.input("h", dtype, {rows, depth}), w = g.input("w", dtype, {classes, depth}),
               label = g.input("label", DType::I64, {rows});
  const Shape box{rows, classes, depth}, flat{rows, classes};
  const NodeId product =
      g.binary(Op::Mul, g.expand(g.reshape(g.cast(h, DType::F32), {rows, 1, depth}), box),
               g.expand(g.reshape(g.cast(w, DType::F32), {1, classes, depth}), box));
  const NodeId logits = g.cast(g.cast(g.reduce(Op::ReduceSum, product, {2}), dtype), DType::F32);
  const auto along = [&](NodeId r) { return g.expand(g.reshape(r, {rows, 1}), flat); };
  const auto minus = [&](NodeId a, NodeId b) {
    return g.binary(Op::Add, a,
                    g.binary(Op::Mul, b, g.broadcast(g.constant(DType::F32, -1.0), flat)));
  };
  const NodeId top = g.reduce(Op::ReduceMax, logits, {1}), low = minus(logits, along(top));
  const NodeId log_sum = g.unary(Op::Log, g.reduce(Op::ReduceSum, g.unary(Op::Exp, low), {1}));
  const NodeId hit =
      g.binary(Op::Eq, along(label), g.expand(g.reshape(g.iota(classes), {1, classes}), flat));
  const NodeId logs = minus(low, along(log_sum));
  const NodeId term = as_number
                          ? g.binary(Op::Mul, logs, g.cast(hit, DType::F32))
                          : g.select(hit, logs, g.broadcast(g.constant(DType::F32, 0.0), flat));
  g.outputs = {g.reduce(Op::ReduceSum, term, {1}), top};
  if (smoothed)
    g.outputs.push_back(g.reduce(Op::ReduceSum, logs, {1}));
  return g;
}

std::vector<HostArray> linear_inputs(DType dtype, std::int64_t rows, std::int64_t classes,
                                     std::int64_t depth) {
  std::vector<double> h, w;
  for (std::int64_t i = 0; i < rows * depth; ++i)
    h.push_back(std::sin(0.7 * double(i)));
  for (std::int64_t i = 0; i < classes * depth; ++i)
    w.push_back(0.3 * std::cos(0.3 * double(i) + 0.01 * double(i % 7)));
  std::vector<HostArray> inputs{HostArray(dtype, {rows, depth}, h),
                                HostArray(dtype, {classes, depth}, w),
                                HostArray(DType::I64, {rows})};
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t label = i % 11 == 10 ? -100 : i * 37 % classes;
    std::memcpy(inputs[2].bytes.data() + i * 8, &label, 8);
  }
  return inputs;
}

/// The only region of a loss when a product of few terms counts as deep.
testing::RegionCase small_case(const Graph& graph, const std::vector<HostArray>& inputs,
                               const Target& target) {
  const Graph g = compiler::prepare_outputs(ir::without_dead_code(graph));
  const compiler::GraphFacts facts(g);
  compiler::StreamingRules rules;
  rules.in_memory = target.is_gpu();
  rules.most_terms = 16;
  const auto partition = compiler::partition_greedily(facts, true, &rules);
  auto regions = compiler::build_regions(facts, partition, target);
  EXPECT_EQ(regions.size(), 1u) << "the logits are stored";
  compiler::canonicalize(regions.at(0).region);
  testing::RegionCase c;
  c.operands = backend::reference::execute(g, inputs, regions.at(0).operands);
  c.outputs = backend::reference::expect(g, inputs, regions.at(0).outputs);
  c.region = std::move(regions.at(0).region);
  return c;
}

TEST(RowProducts, AgreeWithTheFormula) {
  for (auto [rows, classes, depth] : {std::tuple{130, 200, 72}, {64, 136, 40}})
    for (bool as_number : {false, true}) {
      const Graph g = linear_loss(DType::BF16, rows, classes, depth, as_number);
      const auto inputs = linear_inputs(DType::BF16, rows, classes, depth);
      const auto c = testing::aligned_for(small_case(g, inputs, hopper()), hopper());
      for (const char* text :
           {"gpu_row_products bk=64 bm=64 bn=64 stages=3 wm=1 @mma=wgmma",
            "gpu_row_products bk=64 bm=128 bn=176 stages=2 wm=2 @mma=wgmma @order=fixed/2"})
        ASSERT_EQ(testing::check_schedule(c, kernel::gpu_row_products_generator(), schedule(text),
                                          hopper(), {.workers = 3}, true),
                  "");
      for (const Target& target : testing::test_targets())
        ASSERT_EQ(testing::check_schedule(small_case(g, inputs, target), kernel::stream_generator(),
                                          schedule("stream mr=4 nv=2 places=64 rows=12 unroll=2"),
                                          target, {.workers = 2}, true),
                  "");
    }
}

TEST(RowProducts, GiveTheSumOfAllLogarithmsInTheSamePass) {
  const Graph g = linear_loss(DType::BF16, 130, 200, 72, false, true);
  const auto inputs = linear_inputs(DType::BF16, 130, 200, 72);
  const auto c = testing::aligned_for(small_case(g, inputs, hopper()), hopper());
  ASSERT_TRUE(kernel::is_one_pass(c.region)) << kernel::print(c.region);
  ASSERT_EQ(testing::check_schedule(
                c, kernel::gpu_row_products_generator(),
                schedule("gpu_row_products bk=64 bm=64 bn=64 stages=3 wm=1 @mma=wgmma"), hopper(),
                {.workers = 3}, true),
            "");
  for (const Target& target : testing::test_targets())
    ASSERT_EQ(testing::check_schedule(small_case(g, inputs, target), kernel::stream_generator(),
                                      schedule("stream mr=4 nv=2 places=64 rows=12 unroll=2"),
                                      target, {.workers = 2}, true),
              "");
  EXPECT_EQ(testing::regions_of(linear_loss(DType::BF16, 16384, 128256, 4096, true, true), hopper())
                .size(),
            1u);
}

TEST(RowProducts, OfAnyDepthAreMadeOnce) {
  // More elements than the factors have, which takes many rows for a deep product.
  const Graph g = linear_loss(DType::BF16, 16384, 128256, 4096, true);
  const Target target = hopper();
  const auto regions = testing::regions_of(g, target);
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(kernel::lower_greedily(regions[0], target).schedule.generator, "gpu_row_products");
  Target older = hopper();
  testing::set_architecture(older, 80); // no kernel for it there
  EXPECT_EQ(testing::regions_of(g, older).size(), 2u);
  const auto on_cpu = testing::regions_of(linear_loss(DType::F32, 16384, 128256, 4096, true),
                                          testing::test_targets()[0]);
  ASSERT_EQ(on_cpu.size(), 1u);
  EXPECT_EQ(kernel::lower_greedily(on_cpu[0], testing::test_targets()[0]).schedule.generator,
            "stream");
}

TEST(RowProducts, LeaveNoMemoryForTheLogitsInAPlan) {
  constexpr std::int64_t kRows = 8192, kClasses = 128256;
  const Graph g = linear_loss(DType::BF16, kRows, kClasses, 4096, true);
  for (const Target& target : {hopper(), testing::test_targets()[0]}) {
    testing::NullDevice device(target);
    compiler::KernelCache cache;
    const auto compiled = compiler::compile_graph(g, {}, device, cache);
    // Bytes: on a GPU, a maximum, a sum and a pick of each row and tile of 128 columns or more.
    EXPECT_LT(compiled.plan.arena_bytes.value(), kRows * kClasses / 8) << target.device;
  }
}

TEST(RowProducts, OfWhichAllIsNeededAreStored) {
  Graph g = linear_loss(DType::BF16, 16384, 128256, 4096, true);
  // The logits are an output as well.
  for (NodeId id = 0; id < g.size(); ++id)
    if (g[id].op == Op::Cast && g[id].dtype == DType::BF16)
      g.outputs.push_back(id);
  ASSERT_EQ(g.outputs.size(), 3u);
  EXPECT_GE(testing::regions_of(g, hopper()).size(), 2u);
  for (const kernel::Region& region : testing::regions_of(g, hopper()))
    EXPECT_TRUE(kernel::gpu_row_products_generator().space(region, hopper()).empty());
}

} // namespace
} // namespace egret
