// Gathers of a few elements of computed values, and what their gradients scatter.
#include "compiler/row_gathers.h"

#include "compiler/options.h"
#include "compiler/views.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "egret/passes.h"
#include "saturate/saturate.h"
#include "support/equal_values.h"

#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

using ir::NodeId;

struct Counts {
  int of_computed = 0, scatters = 0;
};
Counts counts(const ir::Graph& g) {
  const GraphFacts facts(g);
  Counts c;
  for (NodeId id = 0; id < g.size(); ++id) {
    if (g[id].op == Op::Gather) {
      const Op base = g[facts.view(g[id].inputs[0]).base].op;
      c.of_computed += is_elementwise(base) && info_of(base).cls != OpClass::Source;
    }
    c.scatters += g[id].op == Op::ScatterAdd;
  }
  return c;
}

ir::Graph simplified(const egret::Graph& cx) {
  return passes::normalize()(ir::parse_graph(cx.text()));
}

/// The logarithms of the probabilities of classes, with the gradient of their sum.
ir::Graph log_probabilities(Shape shape, bool training) {
  egret::Graph cx;
  Tensor x = cx.tensor(shape, DType::F32, "x");
  Shape row = shape;
  row.back() = Expr(1);
  const Tensor classes = cx.tensor(row, DType::I64, "classes");
  x.set_requires_grad();
  Tensor chosen = gather(log_softmax(x), -1, classes);
  if (training) {
    Tensor loss = (chosen * chosen).sum();
    loss.retrieve();
    grad(loss, x).retrieve();
  } else {
    chosen.retrieve();
  }
  return simplified(cx);
}

TEST(RowGathers, TakeOneLogitInPlaceOfAllProbabilities) {
  for (const Shape& shape : {Shape{6, 40}, Shape{2, 3, 17}}) {
    const ir::Graph before = log_probabilities(shape, false), after = with_row_gathers(before);
    EXPECT_EQ(counts(before).of_computed, 1);
    EXPECT_EQ(counts(after).of_computed, 0);
    testing::expect_equal_values(before, after); // some of the classes are none
  }
}

TEST(RowGathers, GradientsAreChoices) {
  for (const Shape& shape : {Shape{6, 40}, Shape{2, 3, 17}}) {
    const ir::Graph before = log_probabilities(shape, true), after = with_row_gathers(before);
    EXPECT_EQ(counts(before).scatters, 1);
    EXPECT_EQ(counts(after).scatters, 0);
    EXPECT_EQ(counts(after).of_computed, 0);
    testing::expect_equal_values(before, after);
  }
}

/// The rules move operations of the index before the reshape that gives it a column.
TEST(RowGathers, GradientsAreChoicesAfterTheRules) {
  egret::Graph cx;
  Tensor x = cx.tensor({6, 40}, DType::F32, "x");
  const Tensor classes = cx.tensor({6}, DType::I64, "classes");
  x.set_requires_grad();
  const Tensor chosen = gather(x, 1, classes.unsqueeze(-1)).squeeze(-1) - logsumexp(x);
  const Tensor loss = (chosen * chosen).sum();
  grad(loss, x).retrieve();
  const ir::Graph recorded = simplified(cx);
  const ir::Graph before =
      saturate::Saturated(recorded, Options{}.chosen_rules()).extract(1).front();
  const ir::Graph after = with_row_gathers(before);
  EXPECT_EQ(counts(before).scatters, 1) << ir::print(before);
  EXPECT_EQ(counts(after).scatters, 0) << ir::print(before);
  testing::expect_equal_values(recorded, after);
}

TEST(RowGathers, LeaveWhatIsStoredAnywayOrGatheredWhole) {
  { // more than a quarter
    egret::Graph cx;
    const Tensor x = cx.tensor({8, 5}, DType::F32, "x"), at = cx.tensor({4}, DType::I64, "at");
    take(exp(x), at, 0).retrieve();
    const ir::Graph g = simplified(cx);
    EXPECT_EQ(ir::print(with_row_gathers(g)), ir::print(g));
  }
  { // a product's epilogue
    egret::Graph cx;
    const Tensor x = cx.tensor({64, 16}, DType::F32, "x"), w = cx.tensor({16, 32}, DType::F32, "w"),
                 at = cx.tensor({2}, DType::I64, "at");
    take(relu(matmul(x, w)), at, 0).retrieve();
    const ir::Graph g = simplified(cx);
    EXPECT_EQ(ir::print(with_row_gathers(g)), ir::print(g));
  }
  { // several updates of a row
    egret::Graph cx;
    Tensor x = cx.tensor({6, 40}, DType::F32, "x");
    const Tensor at = cx.tensor({6, 2}, DType::I64, "at");
    x.set_requires_grad();
    Tensor loss = gather(x, -1, at).square().sum();
    loss.retrieve();
    grad(loss, x).retrieve();
    EXPECT_EQ(counts(with_row_gathers(simplified(cx))).scatters, 1);
  }
}

} // namespace
} // namespace egret::compiler
