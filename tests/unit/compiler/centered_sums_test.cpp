// Deviations from a mean add up to 0.
#include "compiler/centered_sums.h"

#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "egret/passes.h"
#include "support/equal_values.h"

#include <gtest/gtest.h>

#include <functional>

namespace egret::compiler {
namespace {

using ir::Graph;

Graph graph_of(const std::function<Tensor(egret::Graph&)>& f) {
  egret::Graph g;
  Tensor y = f(g);
  y.retrieve();
  return passes::normalize()(ir::parse_graph(g.text()));
}

int sums_in(const Graph& g) {
  int sums = 0;
  for (ir::NodeId id = 0; id < g.size(); ++id)
    sums += g[id].op == Op::ReduceSum;
  return sums;
}

/// The gradient of a normalization over `axes`, by its operand.
Graph normalization(const std::vector<std::int64_t>& axes, DType dtype, bool twice) {
  egret::Graph cx;
  Tensor x = cx.tensor({4, 6, 5, 3}, dtype, "x");
  x.set_requires_grad();
  const Tensor w = cx.tensor({4, 6, 5, 3}, DType::F32, "w");
  const Tensor wide = x.to(DType::F32);
  const Tensor centered = wide - mean(wide, axes, true);
  const Tensor other = twice ? wide - mean(wide, axes, true) : centered;
  const Tensor y = centered * rsqrt(mean(square(other), axes, true) + 1e-5);
  const Tensor outputs[] = {sum(y * w)}, inputs[] = {x};
  grad(outputs, inputs)[0].retrieve();
  return passes::normalize()(ir::parse_graph(cx.text()));
}

TEST(CenteredSums, LeaveTheGradientsOfNormalizations) {
  for (const auto& axes : {std::vector<std::int64_t>{0, 2, 3}, {3}, {1}, {2, 3}})
    for (const bool twice : {false, true})
      for (const DType dtype : {DType::F32, DType::BF16}) {
        const Graph before = normalization(axes, dtype, twice);
        const Graph after = without_centered_sums(before);
        EXPECT_NE(ir::print(after), ir::print(before));
        testing::expect_equal_values(before, after);
        // No sum is left that depends on one of the gradient of another.
        EXPECT_EQ(ir::print(without_centered_sums(after)), ir::print(after));
      }
}

TEST(CenteredSums, AreZeroWhateverTheTermsShare) {
  const Graph alone = graph_of([](egret::Graph& g) {
    const Tensor x = g.tensor({6, 5}, DType::F32, "x"), c = g.tensor({6, 1}, DType::F32, "c");
    return sum((x - mean(x, {1}, true)) * c * 2.0, {1});
  });
  const Graph after = without_centered_sums(alone);
  EXPECT_EQ(sums_in(after), 0) << ir::print(after);
  testing::expect_equal_values(alone, after);
}

TEST(CenteredSums, MayHaveAxesOfSizeOne) {
  const Graph one = graph_of([](egret::Graph& g) {
    const Tensor x = g.tensor({1, 6, 5}, DType::F32, "x");
    return sum((x - mean(x, {0, 2}, true)) * g.tensor({1, 6, 1}, DType::F32, "c"), {0, 2});
  });
  EXPECT_EQ(sums_in(without_centered_sums(one)), 0);
  testing::expect_equal_values(one, without_centered_sums(one));
}

/// 2^40 factors.
TEST(CenteredSums, AreNotLookedForInProductsWithoutEnd) {
  const Graph g = graph_of([](egret::Graph& g) {
    Tensor x = g.tensor({6, 5}, DType::F32, "x");
    for (int i = 0; i < 40; ++i)
      x = x * x;
    return sum(x, {1});
  });
  EXPECT_EQ(ir::print(without_centered_sums(g)), ir::print(g));
}

TEST(CenteredSums, StayWhereTheyAreNone) {
  const std::vector<std::function<Tensor(egret::Graph&)>> programs{
      [](egret::Graph& g) { // a factor that differs
        const Tensor x = g.tensor({6, 5}, DType::F32, "x"), c = g.tensor({6, 5}, DType::F32, "c");
        return sum((x - mean(x, {1}, true)) * c, {1});
      },
      [](egret::Graph& g) { // other axes
        const Tensor x = g.tensor({6, 5}, DType::F32, "x");
        return sum(x - mean(x, {1}, true), {0});
      },
      [](egret::Graph& g) { // more axes: each row's deviations add up, but not in one sum's order
        const Tensor x = g.tensor({6, 5}, DType::F32, "x");
        return sum((x - mean(x, {0}, true)) * g.tensor({1, 5}, DType::F32, "c"), {1});
      },
      [](egret::Graph& g) { // another value's mean
        const Tensor x = g.tensor({6, 5}, DType::F32, "x"), y = g.tensor({6, 5}, DType::F32, "y");
        return sum(x - mean(y, {1}, true), {1});
      },
      [](egret::Graph& g) { // a part of the axis
        const Tensor x = g.tensor({6, 5}, DType::F32, "x");
        return sum((x - mean(x, {1}, true))[{Slice{}, Slice{0, 3}}], {1});
      },
      [](egret::Graph& g) { // a sum of what is repeated, which is no mean
        const Tensor x = g.tensor({6, 1}, DType::F32, "x").expand({6, 5});
        return sum(x - sum(x, {1}, true), {1});
      },
      [](egret::Graph& g) { // not the mean
        const Tensor x = g.tensor({6, 5}, DType::F32, "x");
        return sum(x - sum(x, {1}, true) / 4.0, {1});
      },
      [](egret::Graph& g) { // a mean of others' rows
        const Tensor x = g.tensor({5, 5}, DType::F32, "x");
        return sum(x - mean(x, {1}).reshape({1, 5}), {1});
      },
      [](egret::Graph& g) { // squares
        const Tensor x = g.tensor({6, 5}, DType::F32, "x");
        const Tensor d = x - mean(x, {1}, true);
        return sum(d * d, {1});
      },
      [](egret::Graph& g) { // a divisor
        const Tensor x = g.tensor({6, 5}, DType::F32, "x");
        return sum(1.0 / (x - mean(x, {1}, true)), {1});
      }};
  for (const auto& program : programs) {
    const Graph g = graph_of(program);
    EXPECT_EQ(ir::print(without_centered_sums(g)), ir::print(g));
  }
}

} // namespace
} // namespace egret::compiler
