// The order of axes in memory that is chosen across a graph.
#include "compiler/axis_orders.h"

#include "backend/cuda/target.h"
#include "compiler/views.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "egret/passes.h"
#include "support/equal_values.h"

#include <gtest/gtest.h>

#include <set>

namespace egret::compiler {
namespace {

using ir::Graph;
using ir::NodeId;

Graph ordered(const Graph& before, double least_elements = 1 << 16) {
  Graph after = with_axis_orders(before, backend::cuda::known_target(90), least_elements);
  ir::verify(after);
  return after;
}

/// The last axes of the sums over windows that have so many results.
std::set<std::int64_t> last_axes(const Graph& g, std::int64_t results) {
  const GraphFacts facts(g);
  std::set<std::int64_t> found;
  for (NodeId id = 0; id < g.size(); ++id)
    if (g[id].op == Op::ReduceSum && facts.product_of(id) == ir::kNoNode &&
        element_count(g[id].shape).value() == results)
      found.insert(g[id].shape.back().value());
  return found;
}

struct Net {
  DType dtype = DType::F32;
  std::int64_t batch = 2, channels = 16, side = 48; ///< 73728 elements
  bool training = false;
};

/// A block of ConvNeXt (Liu et al. 2022) in [n,c,h,w], the normalization over channels.
Graph block(const Net& n) {
  egret::Graph cx;
  const std::int64_t c = n.channels;
  Tensor x = cx.tensor({n.batch, c, n.side, n.side}, n.dtype, "x");
  Tensor w = cx.tensor({c, 1, 3, 3}, n.dtype, "w"), m = cx.tensor({c, c}, n.dtype, "m"),
         scale = cx.tensor({c}, n.dtype, "scale");
  for (Tensor* t : {&x, &w, &m, &scale})
    t->set_requires_grad();
  Tensor y = conv2d(x, w, {}, {.padding = PerAxis(1), .groups = c}).permute({0, 2, 3, 1});
  y = layer_norm(y, scale, zeros({c}, n.dtype));
  y = matmul(y, m).permute({0, 3, 1, 2}) + x;
  if (!n.training) {
    y.retrieve();
    return ir::parse_graph(cx.text());
  }
  const Tensor outputs[] = {(y * y).to(DType::F32).sum()}, inputs[] = {x, w, m, scale};
  for (Tensor& gradient : grad(outputs, inputs))
    gradient.retrieve();
  return ir::parse_graph(cx.text());
}

TEST(AxisOrders, OfANormalizationOverChannelsAreThoseOfWhatItNormalizes) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const Net net{.dtype = dtype};
    const Graph before = block(net), after = ordered(before);
    const std::int64_t results = net.batch * net.channels * net.side * net.side;
    EXPECT_EQ(last_axes(before, results), std::set<std::int64_t>{48}) << ir::print(before);
    EXPECT_EQ(last_axes(after, results), std::set<std::int64_t>{16}) << ir::print(after);
  }
}

TEST(AxisOrders, KeepValuesAndGradients) {
  for (const DType dtype : {DType::F32, DType::BF16})
    for (const bool training : {false, true}) {
      const Graph before = block({.dtype = dtype, .side = 6, .training = training});
      const Graph after = ordered(before, 1);
      EXPECT_NE(ir::print(before), ir::print(after));
      testing::expect_equal_values(before, after);
    }
}

/// A depthwise convolution has the order of what normalizes its results, and so has its operand.
TEST(AxisOrders, AreFollowedThroughWindows) {
  egret::Graph cx;
  const std::int64_t c = 16, side = 48;
  const Tensor x = cx.tensor({2, c, side, side}, DType::BF16, "x"),
               w = cx.tensor({c, 1, 3, 3}, DType::BF16, "w"),
               m = cx.tensor({c, c}, DType::BF16, "m");
  const Tensor s = matmul(m, (x + 1.0).reshape({2, c, side * side}));
  const Tensor y =
      conv2d(relu(s.reshape({2, c, side, side})), w, {}, {.padding = PerAxis(1), .groups = c});
  layer_norm(y.permute({0, 2, 3, 1}), ones({c}, DType::BF16), zeros({c}, DType::BF16))
      .to(DType::F32)
      .mean({0, 1, 2})
      .retrieve();
  const Graph before = ir::parse_graph(cx.text()), after = ordered(before);
  const auto is_max = [](const ir::Node& node) { return node.op == Op::Max; };
  std::int64_t last = 0;
  for (NodeId id = 0; id < after.size(); ++id)
    if (is_max(after[id]) || after[id].op == Op::Select)
      last = after[id].shape.back().value();
  EXPECT_EQ(last, c) << ir::print(after);
  testing::expect_equal_values(before, after);
}

/// Sides of the images that a rectified linear unit makes, by which of its axes is last.
std::int64_t last_axis_of_units(const Graph& g) {
  std::int64_t last = 0;
  for (NodeId id = 0; id < g.size(); ++id)
    if (g[id].op == Op::Max || g[id].op == Op::Select)
      last = g[id].shape.back().value();
  return last;
}

/// Two convolutions with a batch normalization and a unit between them.
Graph convolutions(DType dtype, std::int64_t kernel, std::int64_t side) {
  egret::Graph cx;
  const std::int64_t c = 32;
  const Tensor x = cx.tensor({4, 16, side, side}, dtype, "x"),
               v = cx.tensor({c, 16, kernel, kernel}, dtype, "v"),
               w = cx.tensor({c, c, kernel, kernel}, dtype, "w");
  const auto padding = PerAxis(kernel / 2);
  Tensor y = conv2d(x, v, {}, {.padding = padding});
  y = relu(batch_norm(y, {}, {}, ones({c}, dtype), zeros({c}, dtype), {.training = true}));
  conv2d(y, w, {}, {.padding = padding}).to(DType::F32).mean({0, 2, 3}).retrieve();
  return ir::parse_graph(cx.text());
}

TEST(AxisOrders, OfConvolutionsIn16BitsEndWithTheChannels) {
  const Graph before = convolutions(DType::BF16, 3, 40), after = ordered(before);
  EXPECT_EQ(last_axis_of_units(before), 40) << ir::print(before);
  EXPECT_EQ(last_axis_of_units(after), 32) << ir::print(after);
  const Graph wide = convolutions(DType::F32, 3, 40); // f32 is split on its way
  EXPECT_EQ(last_axis_of_units(ordered(wide)), 40) << ir::print(ordered(wide));
  const Graph small = convolutions(DType::BF16, 3, 6);
  testing::expect_equal_values(small, ordered(small, 1));
}

/// A product with one of the channels copies rows that do not begin at multiples of 16 bytes.
TEST(AxisOrders, OfProductsEndWithWhatIsAligned) {
  EXPECT_EQ(last_axis_of_units(ordered(convolutions(DType::BF16, 1, 40))), 40);
  EXPECT_EQ(last_axis_of_units(ordered(convolutions(DType::BF16, 1, 41))), 32);
}

/// The block after attention in a transformer, in mixed precision: a norm, two products with a unit
/// between, and the gradients.
Graph feed_forward(std::int64_t batch, std::int64_t length, std::int64_t width,
                   std::int64_t hidden) {
  egret::Graph cx;
  Tensor w = cx.tensor({3 * width, width}, DType::F32, "w"),
         up = cx.tensor({hidden, width}, DType::F32, "up"),
         bias = cx.tensor({hidden}, DType::F32, "bias"),
         down = cx.tensor({width, hidden}, DType::F32, "down");
  for (Tensor* t : {&w, &up, &bias, &down})
    t->set_requires_grad();
  const auto narrow = [](const Tensor& t) { return t.to(DType::BF16); };
  const auto norm = [&](const Tensor& t) {
    return layer_norm(t, ones({width}, DType::BF16), zeros({width}, DType::BF16));
  };
  const Tensor x = cx.tensor({batch, length, width}, DType::BF16, "x");
  const std::vector<Tensor> qkv = chunk(linear(norm(x), narrow(w)), 3, 2);
  const auto heads = [&](std::size_t i) {
    return qkv[i].reshape({batch, length, 4, width / 4}).permute({0, 2, 1, 3});
  };
  const Tensor scores = softmax(matmul(heads(0), heads(1).transpose(2, 3)), -1);
  const Tensor mixed =
      matmul(scores, heads(2)).permute({0, 2, 1, 3}).reshape({batch, length, width}) + x;
  const auto product = [&](const Tensor& rows, const Tensor& weight) {
    return matmul(rows, narrow(weight).transpose(0, 1));
  };
  const Tensor h = gelu(product(norm(mixed), up) + narrow(bias));
  const Tensor y = product(h, down) + mixed;
  const Tensor outputs[] = {square(y.to(DType::F32)).mean()}, inputs[] = {w, up, bias, down};
  const std::vector<Tensor> gradients = grad(outputs, inputs);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    Tensor updated = inputs[i] - 0.1 * gradients[i];
    updated.retrieve();
  }
  return passes::normalize()(ir::parse_graph(cx.text()));
}

/// A weight whose rows are summed says nothing of the results' rows, and a weight's gradient
/// nothing of its factors': the hidden values stay rows.
TEST(AxisOrders, OfAFeedForwardBlockKeepTheHiddenValuesRows) {
  const Graph after = ordered(feed_forward(4, 64, 96, 384), 1);
  int sums = 0;
  for (NodeId id = 0; id < after.size(); ++id)
    if (after[id].op == Op::ReduceSum && element_count(after[id].shape).value() == 4 * 64 * 384) {
      EXPECT_EQ(after[id].shape.back().value(), 384) << ir::print(after);
      ++sums;
    }
  EXPECT_EQ(sums, 2) << "of the way there, and of its gradient";
}

TEST(AxisOrders, AreLeftWhereNothingIsTransposed) {
  egret::Graph cx;
  const Tensor x = cx.tensor({4, 64, 512}, DType::BF16, "x"),
               w = cx.tensor({512, 512}, DType::BF16, "w");
  const Tensor y = layer_norm(x + 1.0, ones({512}, DType::BF16), zeros({512}, DType::BF16));
  (softmax(matmul(y, w), -1) + y).mean({1}).retrieve();
  const Graph g = ir::parse_graph(cx.text());
  EXPECT_EQ(ir::print(ordered(g)), ir::print(g));
}

TEST(AxisOrders, AreLeftOnACpu) {
  const Graph g = block({});
  EXPECT_EQ(ir::print(with_axis_orders(g, {})), ir::print(g));
}

TEST(AxisOrders, OfATensorAndItsTransposeAreLeft) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {300, 300});
  const NodeId y = g.unary(Op::Exp, x);
  const NodeId z = g.unary(Op::Tanh, g.binary(Op::Add, y, g.permute(y, {1, 0})));
  g.outputs = {g.reduce(Op::ReduceSum, z, {0})};
  EXPECT_EQ(ir::print(ordered(g)), ir::print(g));
}

TEST(AxisOrders, OfRandomGraphsKeepTheirValues) {
  int changed = 0;
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    const Graph before = testing::random_graph(seed);
    const Graph after = ordered(before, 1);
    testing::expect_equal_values(before, after);
    changed += ir::print(after) != ir::print(before);
  }
  EXPECT_GT(changed, 10);
}

} // namespace
} // namespace egret::compiler
