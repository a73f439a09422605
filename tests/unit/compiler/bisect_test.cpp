// What makes a result wrong is named: rules, regions and kernels that were planted.
#include "backend/cpu/cpu_device.h"
#include "compiler/bisect.h"
#include "support/bad_kernels.h"
#include "support/random_graph.h"
#include "support/sanitized.h"

#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

using Culprit = BisectReport::Culprit;

backend::Device& device() {
  static const auto made = backend::cpu::make_cpu_device(2);
  return *made;
}

BisectReport bisect_of(const ir::Graph& g, const Options& options) {
  KernelCache cache;
  return bisect(g, random_inputs(g, 3), options, device(), cache);
}

// Sums of e^(x w), and tanh(x + w).
ir::Graph small_graph() {
  ir::Graph g;
  const Shape shape{Expr(12), Expr(40)};
  const ir::NodeId x = g.input("x", DType::F32, shape), w = g.input("w", DType::F32, shape);
  const ir::NodeId e = g.add(Op::Exp, std::vector<ir::NodeId>{g.binary(Op::Mul, x, w)});
  const ir::NodeId sum = g.reduce(Op::ReduceSum, e, {1});
  g.outputs = {sum, g.add(Op::Tanh, std::vector<ir::NodeId>{g.binary(Op::Add, x, w)})};
  return g;
}

TEST(RandomInputs, ThatMemoryDoesNotHoldAreNamed) {
  if (test::kSanitized)
    GTEST_SKIP() << "the sanitizer ends the process";
  ir::Graph g;
  g.outputs = {g.input("x", DType::F32, {Expr(std::int64_t{1} << 50)})};
  try {
    random_inputs(g, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Memory);
    EXPECT_STREQ(error.what(), "input 'x': f32[1125899906842624] is more than memory holds");
  }
}

TEST(Bisect, SaysWhenAllIsRight) {
  for (const Effort effort : {Effort::None, Effort::Quick}) {
    Options options;
    options.effort = effort;
    const BisectReport report = bisect_of(small_graph(), options);
    EXPECT_EQ(report.culprit, Culprit::None) << report.text();
    EXPECT_NE(report.text().find("2 outputs, 492 elements"), std::string::npos) << report.text();
  }
}

TEST(Bisect, NamesAPlantedRule) {
  Options options;
  options.effort = Effort::Quick;
  options.rules.files = {{"mine.egg", R"(; group mine: exact
(ruleset mine)
; x * y = y * x, which is right
(rewrite (Mul x y) (Mul y x) :ruleset mine :name "turns")
; e^x = x
(rewrite (Exp x) x :ruleset mine :name "exp-vanishes")
)"}};
  const BisectReport report = bisect_of(small_graph(), options);
  EXPECT_EQ(report.culprit, Culprit::Rules) << report.text();
  EXPECT_EQ(report.names, std::vector<std::string>{"exp-vanishes (group mine)"});
  EXPECT_NE(report.detail.find("output 0: element "), std::string::npos) << report.detail;
}

TEST(Bisect, NamesRulesThatAreWrongTogether) {
  Options options;
  options.effort = Effort::Quick;
  options.rules.files = {{"mine.egg", R"(; group mine: exact
(ruleset mine)
; e^x is a floor of it, by which nothing gets cheaper
(rewrite (Exp x) (Floor (Exp2 x)) :ruleset mine :name "exp-is-floor")
; a floor of a power is what it is a power of
(rewrite (Floor (Exp2 x)) x :ruleset mine :name "floor-vanishes")
)"}};
  const BisectReport report = bisect_of(small_graph(), options);
  EXPECT_EQ(report.culprit, Culprit::Rules) << report.text();
  EXPECT_EQ(report.names,
            (std::vector<std::string>{"exp-is-floor (group mine)", "floor-vanishes (group mine)"}));
}

void spoil(kernel::KernelProgram& program) {
  testing::replace_op(program.body, Op::Tanh, Op::Floor);
}

TEST(Bisect, NamesAPlantedKernelAndItsSchedule) {
  for (const Effort effort : {Effort::None, Effort::Quick}) {
    Options options;
    options.effort = effort;
    options.fuse = false;
    std::string name, schedule;
    options.inject_fault = [&](kernel::Region& region, kernel::Chosen& chosen) {
      const std::uint64_t before = kernel::hash_of(chosen.program);
      spoil(chosen.program);
      if (kernel::hash_of(chosen.program) != before) {
        name = region.name;
        schedule = kernel::to_string(chosen.schedule);
      }
    };
    const BisectReport report = bisect_of(small_graph(), options);
    ASSERT_NE(name, "");
    EXPECT_EQ(report.culprit, Culprit::Kernel) << report.text();
    EXPECT_EQ(report.names, (std::vector<std::string>{name, schedule}));
    EXPECT_FALSE(report.nodes.empty());
  }
}

// The sine of large numbers: its tolerance is as large as itself, so that anything is within it.
TEST(Bisect, NamesAPlantedKernelWhereTolerancesSayLittle) {
  ir::Graph g;
  const Shape shape{Expr(12), Expr(40)};
  const ir::NodeId x = g.input("x", DType::F32, shape);
  const auto sine = [&](double scale) {
    const ir::NodeId by = g.reshape(g.constant(DType::F32, scale), {Expr(1), Expr(1)});
    return g.unary(Op::Sin, g.binary(Op::Mul, x, g.expand(by, shape)));
  };
  g.outputs = {g.binary(Op::Add, sine(1e9), sine(3e9))};
  Options options;
  options.effort = Effort::None;
  options.fuse = false;
  const BisectReport right = bisect_of(g, options);
  EXPECT_EQ(right.culprit, Culprit::None) << right.text();
  EXPECT_NE(right.text().find("wide tolerances"), std::string::npos) << right.text();
  // The larger of both, which the sum's tolerance allows.
  options.inject_fault = [&](kernel::Region& region, kernel::Chosen& chosen) {
    if (region.operands.size() == 2)
      testing::replace_op(chosen.program.body, Op::Add, Op::Max);
  };
  const BisectReport wrong = bisect_of(g, options);
  EXPECT_EQ(wrong.culprit, Culprit::Kernel) << wrong.text();
  EXPECT_NE(wrong.text().find("its operands make"), std::string::npos) << wrong.text();
}

TEST(Bisect, NamesAPlantedRegion) {
  Options options;
  options.fuse = false;
  std::string name;
  options.inject_fault = [&](kernel::Region& region, kernel::Chosen& chosen) {
    for (kernel::Stage& stage : region.stages)
      for (kernel::BodyValue& value : stage.body)
        if (value.kind == kernel::BodyValue::Kind::Apply && value.op == Op::Tanh) {
          value.op = Op::Floor;
          name = region.name;
        }
    if (name == region.name)
      chosen = kernel::lower_greedily(region, device().target());
  };
  const BisectReport report = bisect_of(small_graph(), options);
  ASSERT_NE(name, "");
  EXPECT_EQ(report.culprit, Culprit::Region) << report.text();
  EXPECT_EQ(report.names, std::vector<std::string>{name});
}

TEST(Bisect, RandomInputsBindSymbolsOnce) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const ir::Graph g = testing::random_graph(seed, {.ops = 6, .symbolic = true});
    Options options;
    const BisectReport report = bisect_of(g, options);
    EXPECT_EQ(report.culprit, Culprit::None) << seed << "\n" << report.text() << ir::print(g);
  }
}

} // namespace
} // namespace egret::compiler
