// With deterministic results no effort changes a bit.
#include "egret/deterministic.h"

#include "egret/compile.h"
#include "egret/effort.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/random.h"

#include <gtest/gtest.h>

#include <functional>

namespace egret {
namespace {

using Program = std::function<std::vector<Tensor>(const Tensor&)>;

// Puts the settings back.
struct Settings {
  std::optional<Effort> before = effort_setting();
  double seconds = budget_seconds();
  bool exact = deterministic();
  ~Settings() {
    set_effort(before, seconds);
    set_deterministic(exact);
  }
};

std::vector<std::vector<std::byte>> bits_of(const Program& program, const Tensor& x, Effort how) {
  set_effort(how, 2);
  auto f = compile([&program](const Tensor& t) { return program(t); });
  std::vector<std::vector<std::byte>> bits;
  for (const Tensor& result : f(x))
    bits.push_back(result.to_bytes());
  return bits;
}

void expect_same_bits(const char* what, const Program& program, const Tensor& x) {
  const auto bits = bits_of(program, x, Effort::None);
  for (Effort how : {Effort::Quick, Effort::Search})
    EXPECT_EQ(bits_of(program, x, how), bits) << what << ", " << name_of(how);
}

TEST(Deterministic, EveryEffortGivesTheSameBits) {
  Settings settings;
  set_deterministic(true);
  Generator g(5);
  const Tensor line = randn({1 << 20}, g).eval(), matrix = randn({96, 160}, g).eval();
  expect_same_bits(
      "sum", [](const Tensor& x) { return std::vector{x.sum()}; }, line);
  expect_same_bits(
      "var", [](const Tensor& x) { return std::vector{x.var()}; }, line);
  expect_same_bits(
      "cumsum", [](const Tensor& x) { return std::vector{cumsum(x, 0)}; }, line);
  expect_same_bits(
      "matmul", [](const Tensor& x) { return std::vector{matmul(x, x.transpose())}; }, matrix);
  expect_same_bits(
      "gradients",
      [](const Tensor& x) {
        const Tensor leaf = x.detach().set_requires_grad(true);
        const Tensor y = softmax(matmul(leaf * 2, leaf.transpose()) * 0.5, -1).sum(0);
        return std::vector{y, grad((y * y).mean(), leaf)};
      },
      matrix);
}

TEST(Deterministic, IsASettingThatPlansAreKeptUnder) {
  Settings settings;
  set_effort(Effort::Quick);
  auto f = compile([](const Tensor& x) { return x * 3 + 1; });
  const Tensor x = ones({4}).eval();
  set_deterministic(false);
  f(x);
  EXPECT_EQ(f.traces(), 1u);
  set_deterministic(true);
  EXPECT_TRUE(deterministic());
  f(x);
  EXPECT_EQ(f.traces(), 2u);
}

} // namespace
} // namespace egret
