// Single steps of recurrent layers, and layers that draw.
#include "egret/functional.h"
#include "egret/nn.h"
#include "support/files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace egret::nn {
namespace {

void expect_close(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  const auto x = a.to_vector(), y = b.to_vector();
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(x[i], y[i], 1e-6) << i;
}

TEST(RecurrentStep, StepsMakeTheSequence) {
  Generator g(1);
  for (Cell cell : {Cell::Tanh, Cell::Relu, Cell::Lstm, Cell::Gru}) {
    const Recurrent layer(cell, 3, 4, g);
    const Tensor x = randn({2, 5, 3}, g).eval();
    const RecurrentOutput whole = layer(x);
    RecurrentState state;
    for (std::int64_t t = 0; t < 5; ++t) {
      state = layer.step(x.select(1, t), state);
      expect_close(state.hidden, whole.output.select(1, t));
    }
    EXPECT_EQ(state.cell.defined(), cell == Cell::Lstm);
    if (state.cell.defined())
      expect_close(state.cell, whole.state.cell[0]);
  }
}

TEST(RecurrentStep, IsForOneLayerAndOneTime) {
  Generator g(2);
  const Lstm two(3, 4, g, {.layers = 2}), one(3, 4, g);
  EXPECT_NE(test::error_of(ErrorKind::Value,
                           [&] {
                             two.step(ones({1, 3}));
                           })
                .find("a step of 2 layers and directions"),
            std::string::npos);
  EXPECT_NE(test::error_of(ErrorKind::Shape,
                           [&] {
                             one.step(ones({1, 2, 3}));
                           })
                .find("needs [batch, inputs], got [1,2,3]"),
            std::string::npos);
  EXPECT_NE(test::error_of(ErrorKind::Shape,
                           [&] {
                             one.step(ones({1, 3}), {ones({2, 4}), {}});
                           })
                .find("a state of [1,2,4] where [1,1,4] is needed"),
            std::string::npos);
}

TEST(LayersThatDraw, SlopesLieInTheirRange) {
  Generator g(3);
  const auto y = rrelu(full({1000}, -1.0), g, 0.25, 0.5, true).to_vector();
  double total = 0;
  for (float v : y) {
    EXPECT_LE(v, -0.25F);
    EXPECT_GE(v, -0.5F);
    total += v;
  }
  EXPECT_NEAR(total / 1000, -0.375, 0.02);
  EXPECT_GT(std::set<float>(y.begin(), y.end()).size(), 900u);
  expect_close(rrelu(tensor({-8.0, 2.0}), g, 0.25, 0.5), tensor({-3.0, 2.0}));
  EXPECT_EQ(rrelu(ones({4}), g, 0.25, 0.5, true).sum().item(), 4);
}

TEST(LayersThatDraw, WholeChannelsAreDropped) {
  Generator g(4);
  const Tensor y = feature_alpha_dropout(ones({20, 30, 2, 2}), 0.4, g).eval();
  const auto v = y.to_vector();
  std::set<float> values(v.begin(), v.end());
  EXPECT_EQ(values.size(), 2u);
  for (std::size_t i = 0; i < v.size(); i += 4)
    for (std::size_t k = 1; k < 4; ++k)
      ASSERT_EQ(v[i], v[i + k]);
  const auto kept = std::count(v.begin(), v.end(), *values.rbegin());
  EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(v.size()), 0.6, 0.07);
  expect_close(feature_alpha_dropout(ones({2, 3}), 0.4, g, false), ones({2, 3}));
}

} // namespace
} // namespace egret::nn
