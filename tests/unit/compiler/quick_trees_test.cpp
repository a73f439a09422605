// Trees that effort `quick` takes without trying them: where no family takes the region.
#include "compiler/search/candidates.h"
#include "kernel/families.h"
#include "kernel/templates/template.h"
#include "support/loop_regions.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

using testing::RegionCase;

RegionCase case_of(const testing::MakeGraph& make, const kernel::Target& target) {
  ir::Graph g;
  g.outputs = make(g);
  const auto cases =
      testing::region_cases(g, testing::random_inputs(g, 3, {.special = false}), target);
  EXPECT_EQ(cases.size(), 1u);
  return testing::aligned_for(cases.at(0), target);
}

/// The sum of all products of a matrix and another one, turned and through tanh: rows of neither
/// lie side by side in both.
testing::MakeGraph turned_sum(std::int64_t rows, std::int64_t columns) {
  return [=](ir::Graph& g) {
    const ir::NodeId x = g.input("x", DType::F32, {rows, columns});
    const ir::NodeId y = g.permute(g.input("y", DType::F32, {columns, rows}), {1, 0});
    return testing::Outputs{
        g.reduce(Op::ReduceSum, g.binary(Op::Mul, x, g.unary(Op::Tanh, y)), {0, 1})};
  };
}

struct Asked {
  Candidate greedy;
  std::optional<Candidate> tree;
  std::optional<loops::LoopReport> report;
};

Asked ask(const RegionCase& c, const kernel::Target& target) {
  const auto sizes = sizes_to_try(c.region);
  const Machine machine = usual_machine(target);
  Asked asked;
  asked.greedy = candidates_of(c.region, target, machine, sizes, 1, 0).list.at(0);
  asked.tree = quick_loop_tree(asked.greedy, c.region, target, machine, sizes, asked.report);
  return asked;
}

TEST(QuickTrees, AreTakenWhereNoFamilyTakesTheRegion) {
  const kernel::Target gpu = testing::test_gpu();
  const RegionCase c = case_of(turned_sum(300, 70), gpu);
  const Asked asked = ask(c, gpu);
  EXPECT_EQ(asked.greedy.schedule.generator, "generic");
  ASSERT_TRUE(asked.report.has_value());
  EXPECT_GT(asked.report->points, 0u);
  ASSERT_TRUE(asked.tree.has_value());
  EXPECT_EQ(asked.tree->schedule.generator, "loops");
  EXPECT_EQ(testing::run_and_compare(c, asked.tree->program), "");
  EXPECT_EQ(testing::run_and_compare(c, asked.greedy.program), "");
  EXPECT_EQ(ask(c, gpu).tree->schedule, asked.tree->schedule) << "always the same one";
}

/// What is chosen without any search has blocks for the first axis and threads for the second.
TEST(QuickTrees, OfOneSumBlocksMakePartsWithoutASearch) {
  const kernel::Target gpu = testing::test_gpu();
  const RegionCase c = case_of(turned_sum(300, 70), gpu);
  const auto chosen = kernel::lower_greedily(c.region, gpu);
  const auto tree = kernel::tree_of(c.region, chosen.schedule, gpu);
  ASSERT_TRUE(tree.has_value());
  EXPECT_EQ(kernel::loops::to_text(**tree, c.region),
            "acc(0,for(0,300,1,grid,acc(0,for(1,3,32,serial,for(1,32,1,lane,"
            "mask(1,body(0)))))))");
  EXPECT_EQ(testing::run_and_compare(c, chosen.program), "");
  EXPECT_EQ(kernel::lower_greedily(case_of(turned_sum(30, 20), gpu).region, gpu).schedule.generator,
            "gpu_rows")
      << "few terms";
}

TEST(QuickTrees, AreNotAskedForWhereAFamilyTakesTheRegion) {
  const kernel::Target gpu = testing::test_gpu();
  for (const auto& make : {testing::softmax_graph(64, 100), testing::product_graph(64, 64, 64)}) {
    const Asked asked = ask(case_of(make, gpu), gpu);
    EXPECT_FALSE(asked.tree.has_value());
    EXPECT_FALSE(asked.report.has_value());
  }
  const kernel::Target cpu = testing::loop_target();
  EXPECT_FALSE(ask(case_of(testing::softmax_graph(64, 100), cpu), cpu).report.has_value());
}

TEST(QuickTrees, AreNotAskedForScattersAndScans) {
  const kernel::Target gpu = testing::test_gpu();
  const auto scan = [](ir::Graph& g) {
    return testing::Outputs{g.scan(Op::ScanSum, g.input("x", DType::F32, {400, 300}), 0)};
  };
  EXPECT_FALSE(ask(case_of(scan, gpu), gpu).report.has_value());
}

} // namespace
} // namespace egret::compiler
