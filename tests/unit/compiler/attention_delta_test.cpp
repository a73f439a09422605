// A row's sum of weights times inner products is had from the mixture where there is one.
#include "compiler/attention_delta.h"

#include "backend/reference/reference.h"
#include "compiler/options.h"
#include "kernel/stream_form.h"
#include "saturate/saturate.h"
#include "support/attention_graphs.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

using ir::Graph;
using ir::NodeId;
using testing::Mask;

testing::Attention gradients_of(Mask mask, DType type, bool capped = false) {
  return {"", 1, 2, 1, 30, 20, 4, 6, type, mask, false, capped, true};
}

/// The most passes that a stream of the graph takes on a CPU without caches.
int passes_of(const Graph& graph) {
  kernel::Target target = testing::test_targets()[0];
  target.l2_bytes = 64;
  int passes = 0;
  for (const kernel::Region& region : testing::regions_of(graph, target)) {
    const auto found =
        kernel::find_stream(kernel::prepared_for_stream(region), kernel::StreamTakes::Vectors);
    if (found.ok)
      passes = std::max(passes, found.form.passes);
  }
  return passes;
}

TEST(RowSums, OfASoftmaxsGradientComeFromTheMixture) {
  for (const Mask mask : {Mask::None, Mask::Causal, Mask::Given})
    for (const bool capped : {false, true}) {
      const Graph before = attention_graph(gradients_of(mask, DType::F32, capped));
      const Graph after = with_attention_delta(before);
      ir::verify(after);
      EXPECT_EQ(passes_of(before), 2) << ir::print(before);
      EXPECT_EQ(passes_of(after), 1) << ir::print(after);
      const auto inputs = testing::random_inputs(before, 5, {.special = false, .range = 1});
      const auto expected = backend::reference::expect(before, inputs);
      const auto actual = backend::reference::execute(after, inputs);
      for (std::size_t o = 0; o < actual.size(); ++o) {
        const auto result = backend::reference::compare(actual[o], expected[o], "output");
        EXPECT_TRUE(result.ok) << result.message;
      }
    }
}

/// The rules multiply a row's maximum by -1 before they expand it to the row.
TEST(RowSums, OfASoftmaxsGradientComeFromTheMixtureAfterTheRules) {
  const Graph recorded = attention_graph(gradients_of(Mask::Causal, DType::F32));
  const Graph before = saturate::Saturated(recorded, Options{}.chosen_rules()).extract(1).front();
  EXPECT_NE(ir::print(before), ir::print(recorded));
  EXPECT_EQ(passes_of(with_attention_delta(before)), 1) << ir::print(before);
}

TEST(RowSums, AreLeftWhereNothingElseNeedsTheMixture) {
  Graph g = attention_graph(gradients_of(Mask::Causal, DType::F32));
  g.outputs.erase(g.outputs.begin());
  g = ir::without_dead_code(g);
  EXPECT_EQ(ir::print(with_attention_delta(g)), ir::print(g));
}

TEST(RowSums, AreLeftWhereWeightsAreRounded) {
  const Graph g = attention_graph(gradients_of(Mask::Causal, DType::BF16));
  EXPECT_EQ(ir::print(with_attention_delta(g)), ir::print(g));
}

/// sum over j of w[i,j] * (sum over d of a[i,d] v[j,d]) beside sum over j of w[i,j] v'[j,d], where
/// w is e[i,j], divided by `divisor` of its row if there is one.
Graph sums(bool same_values, NodeId (*divisor)(Graph&, NodeId)) {
  Graph g;
  const Shape box{12, 9};
  NodeId e = g.unary(Op::Exp, g.input("x", DType::F32, box));
  if (divisor != nullptr)
    e = g.binary(Op::Div, e, g.expand(g.reshape(divisor(g, e), {12, 1}), box));
  const NodeId a = g.input("a", DType::F32, {12, 5}), v = g.input("v", DType::F32, {9, 5}),
               other = g.input("w", DType::F32, {9, 5});
  const auto spread = [&](NodeId t, Shape shape, Shape wide) {
    return g.expand(g.reshape(t, std::move(shape)), std::move(wide));
  };
  const NodeId inner = g.reduce(
      Op::ReduceSum,
      g.binary(Op::Mul, spread(a, {12, 1, 5}, {12, 9, 5}), spread(v, {1, 9, 5}, {12, 9, 5})), {2});
  const NodeId mixture = g.reduce(Op::ReduceSum,
                                  g.binary(Op::Mul, spread(e, {12, 9, 1}, {12, 9, 5}),
                                           spread(same_values ? v : other, {1, 9, 5}, {12, 9, 5})),
                                  {1});
  g.outputs = {mixture, g.reduce(Op::ReduceSum, g.binary(Op::Mul, e, inner), {1})};
  return ir::without_dead_code(g);
}

bool is_shortened(const Graph& g) {
  return ir::print(with_attention_delta(g)) != ir::print(g);
}

TEST(RowSums, NeedTheSameValuesAndAKnownDivisor) {
  EXPECT_TRUE(is_shortened(sums(true, nullptr)));
  EXPECT_FALSE(is_shortened(sums(false, nullptr)));
  // A sum of exponentials that no maximum was taken from may be 0 or infinite.
  EXPECT_FALSE(
      is_shortened(sums(true, [](Graph& g, NodeId e) { return g.reduce(Op::ReduceSum, e, {1}); })));
  EXPECT_FALSE(
      is_shortened(sums(true, [](Graph& g, NodeId) { return g.input("l", DType::F32, {12}); })));
}

} // namespace
} // namespace egret::compiler
