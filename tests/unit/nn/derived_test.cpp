// Weights side by side, kept beside a captured model: computed once, recomputed when a weight
// changes.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/nn.h"
#include "egret/optim.h"

#include <gtest/gtest.h>

namespace egret::nn {
namespace {

constexpr std::int64_t kWidth = 32;

struct Attention {
  Linear q, k, v, out;

  explicit Attention(Generator& g)
      : q(kWidth, kWidth, g), k(kWidth, kWidth, g), v(kWidth, kWidth, g), out(kWidth, kWidth, g) {}
  Tensor operator()(const Tensor& x) const {
    const Tensor scores = softmax(matmul(q(x), k(x).transpose(0, 1)), -1);
    return out(matmul(scores, v(x)));
  }
  EGRET_FIELDS(q, k, v, out)
};

struct Gated {
  Linear gate, up, down;

  explicit Gated(Generator& g)
      : gate(kWidth, 64, g, false), up(kWidth, 64, g, false), down(64, kWidth, g, false) {}
  Tensor operator()(const Tensor& x) const { return down(silu(gate(x)) * up(x)); }
  EGRET_FIELDS(gate, up, down)
};

CompileOptions searched() {
  CompileOptions options;
  options.effort = Effort::Quick;
  return options;
}

void expect_equal(const Tensor& a, const Tensor& b) {
  const auto x = a.to_vector(), y = b.to_vector();
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(x[i], y[i], 1e-5F) << i;
}

Tensor some_rows(Generator& g) {
  const Tensor x = randn({5, kWidth}, g);
  x.eval();
  return x;
}

std::uint64_t fills() {
  return counters().derived_fills;
}

template <class Module>
void check(const char* names) {
  Generator g(3);
  Module module(g);
  NoGrad guard;
  auto forward = compile([&](const Tensor& x) { return module(x); }, searched());
  auto plain = compile([&](const Tensor& x) { return module(x); }, {.effort = Effort::None});
  const Tensor x = some_rows(g);
  const std::uint64_t before = fills();
  expect_equal(forward(x), plain(x));
  EXPECT_EQ(fills(), before + 1);
  EXPECT_NE(forward.explain().find(names), std::string::npos) << forward.explain();
  EXPECT_EQ(plain.explain().find("derived:"), std::string::npos) << "effort none keeps nothing";
  // Other rows, the same weights.
  const Tensor y = some_rows(g);
  expect_equal(forward(y), plain(y));
  EXPECT_EQ(fills(), before + 1);
  // A weight is replaced, all are loaded, and a step writes over them in place.
  for (auto& named : named_parameters(module))
    if (named.name.find("weight") != std::string::npos) {
      named.tensor.assign(named.tensor * 2);
      break;
    }
  expect_equal(forward(y), plain(y));
  EXPECT_EQ(fills(), before + 2);
  Generator other(7);
  Module loaded(other);
  load_state_dict(module, state_dict(loaded));
  expect_equal(forward(y), plain(y));
  EXPECT_EQ(fills(), before + 3);
  auto step = compile([](Module& m) {
    for (auto& named : named_parameters(m))
      named.tensor.assign(named.tensor * 0.5);
  });
  for (std::uint64_t i = 1; i < 4; ++i) { // the later ones in the memory of the first
    step(module);
    expect_equal(forward(y), plain(y));
    EXPECT_EQ(fills(), before + 3 + i);
  }
  expect_equal(forward(y), forward(y));
  EXPECT_EQ(fills(), before + 6);
}

TEST(Derived, QueriesKeysAndValuesOfACapturedModel) {
  check<Attention>("derived: concatenation f32");
}

TEST(Derived, GateAndUpOfACapturedModel) {
  check<Gated>("derived: concatenation f32");
}

TEST(Derived, ModelsOfOneFormKeepTheirOwn) {
  Generator g(3);
  Gated one(g), two(g);
  auto first = compile([&](const Tensor& x) { return one(x); }, searched());
  auto second = compile([&](const Tensor& x) { return two(x); }, searched());
  const Tensor x = some_rows(g);
  for (int i = 0; i < 3; ++i) {
    expect_equal(first(x), one(x));
    expect_equal(second(x), two(x));
  }
}

// What changes with every call, or is given with it, is not kept.
TEST(Derived, AFunctionThatUpdatesItsWeightsKeepsNone) {
  Generator g(3);
  Gated module(g);
  NoGrad guard;
  auto train = compile(
      [&](const Tensor& x) {
        const Tensor y = module(x);
        for (Tensor* w : {&module.gate.weight, &module.up.weight})
          w->assign(*w * 0.5);
        return y;
      },
      searched());
  auto given = compile([](const Gated& m, const Tensor& x) { return m(x); }, searched());
  const Tensor x = some_rows(g);
  const std::uint64_t before = fills();
  const Tensor want = module(x);
  want.eval();
  expect_equal(given(module, x), want);
  expect_equal(train(x), want);
  EXPECT_EQ(fills(), before);
  EXPECT_EQ(train.explain().find("derived:"), std::string::npos);
}

} // namespace
} // namespace egret::nn
