// Loops over time: scan() gives what a loop that is written out gives.
#include "egret/compile.h"
#include "egret/egret.h"
#include "egret/grad.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace egret {
namespace {

using Floats = std::vector<float>;
using Tensors = std::vector<Tensor>;

/// Values between -1 and 1 that differ.
Tensor wave(std::int64_t rows, std::int64_t columns, double speed) {
  return sin(arange(rows * columns).to(DType::F32) * speed).reshape({rows, columns});
}

void expect_close(const Tensor& have, const Tensor& want) {
  ASSERT_EQ(have.shape(), want.shape());
  const Floats x = have.to_vector(), y = want.to_vector();
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(x[i], y[i], 1e-5 * (1 + std::fabs(y[i]))) << i;
}

/// A cell of two states, whose outputs are the first one and a sum.
ScanStep two_states(const Tensors& state, const Tensors& x) {
  const Tensor h = tanh(state[0] * 0.5 + state[1] + x[0]), c = state[1] * 0.9 + h * x[1];
  return {{h, c}, {h, (h + c).sum(0)}};
}

TEST(Scan, GivesTheStatesOfALoop) {
  const Tensor x = tensor({1.0F, 2.0F, 3.0F, 4.0F});
  const auto step = [](const Tensor& h, const Tensor& x_t) { return h * 2 + x_t; };
  EXPECT_EQ(scan(step, full({}, 1.0), x).to_vector(), (Floats{3, 8, 19, 42}));
  EXPECT_EQ(scan(step, full({}, 1.0), x, {.reverse = true}).to_vector(), (Floats{65, 32, 15, 6}));
}

TEST(Scan, CarriesSeveralStatesAndOutputs) {
  const Tensor a = wave(6, 5, 1.3), b = wave(6, 5, 0.4), h = wave(1, 5, 2).reshape({5});
  for (const bool reverse : {false, true}) {
    const ScanResult have = scan(two_states, {h, zeros({5})}, {a, b}, {.reverse = reverse});
    Tensors state{h, zeros({5})};
    std::vector<Tensors> outputs(2, Tensors(6));
    for (std::int64_t i = 0; i < 6; ++i) {
      const std::int64_t t = reverse ? 5 - i : i;
      const ScanStep made = two_states(state, {a[t], b[t]});
      state = made.state;
      for (std::size_t o = 0; o < 2; ++o)
        outputs[o][static_cast<std::size_t>(t)] = made.outputs[o];
    }
    ASSERT_EQ(have.state.size(), 2u);
    ASSERT_EQ(have.outputs.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      expect_close(have.state[i], state[i]);
      expect_close(have.outputs[i], stack(outputs[i]));
    }
    EXPECT_EQ(have.outputs[1].shape(), (Shape{6}));
  }
}

TEST(Scan, RunsWithoutInputsAndWithoutSteps) {
  const auto twice = [](const Tensors& state, const Tensors& x) {
    return ScanStep{{state[0] * 2}, {x.empty() ? state[0] : state[0] + x[0]}};
  };
  const ScanResult powers = scan(twice, {tensor({1.0F, 3.0F})}, {}, {.length = 3});
  EXPECT_EQ(powers.state[0].to_vector(), (Floats{8, 24}));
  EXPECT_EQ(powers.outputs[0].to_vector(), (Floats{1, 3, 2, 6, 4, 12}));
  Tensor first = tensor({1.0F, 3.0F});
  ScanResult none = scan(twice, {first}, {zeros({0, 2})});
  EXPECT_EQ(none.outputs[0].shape(), (Shape{0, 2}));
  none.state[0] += 1; // a value of its own
  EXPECT_EQ(none.state[0].to_vector(), (Floats{2, 4}));
  EXPECT_EQ(first.to_vector(), (Floats{1, 3}));
}

TEST(Scan, HasTheGradientsOfALoop) {
  const auto gradients = [](bool scanned) {
    Tensor x = wave(7, 4, 1.3), w = wave(4, 4, 0.9) * 0.3, h = wave(1, 4, 2.1);
    for (Tensor* t : {&x, &w, &h})
      t->set_requires_grad();
    const auto step = [&](const Tensor& state, const Tensor& x_t) {
      return tanh(matmul(state, w) + x_t);
    };
    Tensor all;
    if (scanned) {
      all = scan(step, h, x);
    } else {
      Tensors states;
      Tensor state = h;
      for (std::int64_t t = 0; t < x.size(0); ++t)
        states.push_back(state = step(state, x[t]));
      all = stack(states);
    }
    return grad(Tensors{square(all).sum()}, Tensors{x, w, h});
  };
  const Tensors have = gradients(true), want = gradients(false);
  for (std::size_t i = 0; i < want.size(); ++i)
    expect_close(have[i], want[i]);
}

TEST(Scan, ACompiledLoopMultipliesItsInputsOnceAndRollsWhatIsLinear) {
  const Tensor x = wave(16, 8, 1.1), w = wave(8, 8, 0.7);
  const auto linear = [&](const Tensor& all) {
    return scan([&](const Tensor& h, const Tensor& x_t) { return h * 0.9 + matmul(x_t, w); },
                zeros({8}), all);
  };
  auto compiled = compile(linear);
  expect_close(compiled(x), linear(x));
  EXPECT_NE(compiled.explain().find("scan_linear_scan"), std::string::npos) << compiled.explain();
  EXPECT_NE(compiled.explain().find(" 2 kernels"), std::string::npos) << compiled.explain();
}

} // namespace
} // namespace egret
