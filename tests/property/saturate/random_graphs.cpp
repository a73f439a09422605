// Random graphs through saturation and extraction agree with the evaluator: to the last bit with
// exact rules, within its tolerance with those that reassociate; in whatever order rules are
// loaded.
#include "backend/reference/reference.h"
#include "saturate/saturate.h"
#include "support/saturated_graphs.h"

#include <gtest/gtest.h>

namespace egret::testing {
namespace {

using saturate::Tag;

/// Sums and products of moderate numbers, nothing that jumps: where another order of summation
/// stays within rounding.
const RandomGraphOptions kSmooth{
    .ops = 20,
    .dtypes = {DType::F32, DType::F64},
    .allowed = {Op::Add, Op::Mul, Op::Max, Op::ReduceSum, Op::ReduceMax, Op::Sigmoid, Op::Tanh,
                Op::Reshape, Op::Permute, Op::Expand, Op::Shrink, Op::Flip, Op::Constant},
    .max_elements = 300};

TEST(Saturation, ExactRulesKeepEveryBitOfRandomGraphs) {
  expect_kept(150, {}, 0);
}
TEST(Saturation, ExactRulesKeepEveryBitWithSymbolicDims) {
  expect_kept(100, {.symbolic = true}, 0);
}
TEST(Saturation, ExactRulesKeepEveryBitOfAlgebra) {
  expect_kept(200, kAlgebra, 0);
}
TEST(Saturation, TheOrderOfRulesDoesNotMatter) {
  expect_kept(60, kAlgebra, 17);
  expect_kept(60, {}, 99);
}

TEST(Saturation, ReassociatingRulesStayWithinRounding) {
  std::uint64_t fired = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const ir::Graph graph = random_graph(seed, kSmooth);
    saturate::Saturated saturated(
        graph,
        {.allowed = {Tag::Exact, Tag::Reassociates}, .seconds = 5, .rows = 30000, .rounds = 6});
    for (const saturate::RuleUse& use : saturated.report().rules)
      fired += use.tag == Tag::Reassociates ? use.fired : 0;
    const auto inputs = random_inputs(graph, seed, {.special = false, .range = 1});
    const ir::Graph after = saturated.extract().at(0);
    auto expected = backend::reference::expect(graph, inputs);
    const auto also = backend::reference::expect(after, inputs);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      for (std::size_t at = 0; at < expected[i].error.size() && !also[i].error.empty(); ++at)
        expected[i].error[at] += also[i].error[at];
      // Neither estimate knows the rounding of a constant that was folded.
      const auto result =
          backend::reference::compare(also[i].value, expected[i], "output", {.scale = 16});
      ASSERT_TRUE(result.ok) << "seed " << seed << ": " << result.message << "\nbefore\n"
                             << print(graph) << "after\n"
                             << print(after);
    }
  }
  EXPECT_GT(fired, 200u);
}

} // namespace
} // namespace egret::testing
