// Measured on this machine: a search keeps a weight in panels where a few rows meet it, and makes
// them again when it changes.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/nn.h"
#include "support/scale.h"

#include <gtest/gtest.h>

namespace egret::nn {
namespace {

/// Few rows times wide weights, which a kernel would pack anew in each run.
TEST(KeptLayouts, AreMadeAgainWhenAWeightChanges) {
  Generator g(3);
  Linear linear(1024, 1024, g, false);
  NoGrad guard;
  CompileOptions searched;
  searched.effort = Effort::Search;
  searched.budget_seconds = 40 * test::scale();
  auto forward = compile([&](const Tensor& x) { return relu(linear(x)); }, searched);
  auto plain = compile([&](const Tensor& x) { return relu(linear(x)); });
  auto train = compile(
      [&](const Tensor& x) {
        const Tensor y = relu(linear(x));
        linear.weight.assign(linear.weight * 0.5);
        return y;
      },
      searched);
  const Tensor x = randn({4, 1024}, g);
  x.eval();
  const auto expect_same = [&](const Tensor& a, const Tensor& b) {
    const auto p = a.to_vector(), q = b.to_vector();
    for (std::size_t i = 0; i < p.size(); ++i)
      ASSERT_NEAR(p[i], q[i], 1e-4F) << i;
  };
  const std::uint64_t before = counters().derived_fills;
  expect_same(forward(x), plain(x));
  const std::string text = forward.explain();
  if (text.find("derived:") == std::string::npos)
    GTEST_SKIP() << "on this machine something else is faster than a kept layout:\n" << text;
  EXPECT_NE(text.find("kept until one of them changes"), std::string::npos) << text;
  expect_same(forward(x), plain(x));
  EXPECT_EQ(counters().derived_fills, before + 1);
  linear.weight.assign(linear.weight * 2);
  expect_same(forward(x), plain(x));
  EXPECT_EQ(counters().derived_fills, before + 2);
  // A function that changes the weight keeps nothing made of it.
  const Tensor wanted = plain(x);
  wanted.eval();
  expect_same(train(x), wanted);
  EXPECT_EQ(train.explain().find("derived:"), std::string::npos);
  EXPECT_EQ(counters().derived_fills, before + 2);
  expect_same(forward(x), plain(x)); // what it left
  EXPECT_EQ(counters().derived_fills, before + 3);
}

} // namespace
} // namespace egret::nn
