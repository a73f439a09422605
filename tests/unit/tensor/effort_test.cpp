// The compiler's effort as a setting: what is valid, and what it changes.
#include "egret/effort.h"

#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/explain.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "support/cpu_levels.h"
#include "support/cuda_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace egret {
namespace {

using testing::error_of;

// Puts the setting back.
struct SameAgain {
  std::optional<Effort> before = effort_setting();
  double seconds = budget_seconds();
  ~SameAgain() { set_effort(before, seconds); }
};

TEST(EffortSetting, WordsAreReadBack) {
  for (Effort e : {Effort::None, Effort::Quick, Effort::Search, Effort::Exhaustive})
    EXPECT_EQ(parse_effort(name_of(e), "test"), e);
  EXPECT_EQ(error_of(ErrorKind::Value, [] { parse_effort("fast", "EGRET_EFFORT"); }),
            "EGRET_EFFORT: `fast` is none of none, quick, search, exhaustive");
}

TEST(EffortSetting, ABudgetIsAPositiveNumberOfSeconds) {
  SameAgain guard;
  for (double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                     std::numeric_limits<double>::quiet_NaN()}) {
    const auto said = error_of(ErrorKind::Value, [&] { set_effort(Effort::Search, bad); });
    EXPECT_NE(said.find("positive"), std::string::npos) << said;
    EXPECT_EQ(effort_setting(), guard.before);
  }
  set_effort(Effort::Quick, 2.5);
  EXPECT_EQ(effort(), Effort::Quick);
  EXPECT_EQ(budget_seconds(), 2.5);
  set_effort(Effort::None);
  EXPECT_EQ(budget_seconds(), 2.5);
  auto step = compile([](const Tensor& x) { return x + 1; }, {.budget_seconds = -1});
  error_of(ErrorKind::Value, [&] { step(tensor({1.f})); });
}

TEST(EffortSetting, IsPartOfWhatAPlanIsKeptUnder) {
  SameAgain guard;
  auto step = compile([](const Tensor& x) { return exp(x) * 3; });
  const Tensor x = tensor({1.f, 2.f});
  set_effort(Effort::None);
  step(x);
  EXPECT_EQ(step.traces(), 1u);
  set_effort(Effort::Quick);
  step(x);
  EXPECT_EQ(step.traces(), 2u);
  set_effort(Effort::None);
  step(x);
  EXPECT_EQ(step.traces(), 2u);
}

// What is compiled is rewritten and ranked by default; what is evaluated as it is read is not,
// unless an effort was set, and neither is what is to run as it is written.
TEST(EffortSetting, CompiledFunctionsAreQuickByDefaultAndLazyTensorsAreNot) {
  SameAgain guard;
  set_effort({});
  EXPECT_EQ(effort(), Effort::Quick);
  EXPECT_EQ(effort_setting(), std::nullopt);
  const auto twice = [](const Tensor& x) { return amax(amax(x, 0) + 1, -1) - 1; };
  const auto explained = [&](CompileOptions options) {
    auto compiled = compile(twice, std::move(options));
    compiled(ones({5, 7}));
    return compiled.explain();
  };
  const auto read = [&] {
    const Tensor x = ones({5, 7});
    x.eval();
    return explain(twice(x));
  };
  const std::string quick = "search: effort quick";
  EXPECT_NE(explained({}).find(quick), std::string::npos) << explained({});
  EXPECT_EQ(explained({.effort = Effort::None}).find(quick), std::string::npos);
  EXPECT_EQ(explained({.fuse = false}).find(quick), std::string::npos);
  EXPECT_EQ(read().find(quick), std::string::npos);
  set_effort(Effort::None);
  EXPECT_EQ(effort(), Effort::None);
  EXPECT_EQ(explained({}).find(quick), std::string::npos);
  set_effort(Effort::Quick);
  EXPECT_EQ(effort_setting(), Effort::Quick);
  EXPECT_NE(read().find(quick), std::string::npos) << read();
}

TEST(AllowedRules, ReachTheCompilerAndArePartOfWhatAPlanIsKeptUnder) {
  const auto scaled = [](const Tensor& x, const Tensor& r, const Tensor& w) {
    return matmul(x * r.reshape({4, 1}), w);
  };
  const auto explained = [&](CompileOptions options) {
    auto compiled = compile(scaled, std::move(options));
    compiled(zeros({4, 16}), zeros({4}), zeros({16, 8}));
    return compiled.explain();
  };
  const RuleTags more{RuleTag::Reassociates};
  EXPECT_EQ(explained({.effort = Effort::Quick}).find("hoist-factor"), std::string::npos);
  EXPECT_NE(explained({.effort = Effort::Quick, .allow = more}).find("hoist-factor"),
            std::string::npos);
  const RuleTags before = allowed_rules();
  allow_rules(more);
  EXPECT_EQ(allowed_rules(), more);
  EXPECT_NE(explained({.effort = Effort::Quick}).find("hoist-factor"), std::string::npos);
  EXPECT_EQ(explained({.effort = Effort::Quick, .allow = RuleTags{}}).find("hoist-factor"),
            std::string::npos);
  allow_rules(before);
}

TEST(AllowedRules, WordsAreReadBack) {
  for (RuleTag tag :
       {RuleTag::Exact, RuleTag::Reassociates, RuleTag::Approximate, RuleTag::InferenceOnly})
    EXPECT_EQ(parse_rule_tag(name_of(tag), "test"), tag);
  EXPECT_EQ(error_of(ErrorKind::Value, [] { parse_rule_tag("fast", "EGRET_ALLOW"); }),
            "EGRET_ALLOW: there is no tag `fast`; tags: exact, reassociates, approximate, "
            "inference-only");
}

TEST(ExplainTwo, SaysWhetherAKernelIsSharedAndWhatItCosts) {
  const Tensor x = ones({64, 32});
  x.eval();
  const Tensor y = exp(x) * 2, z = y.sum(-1);
  const std::string one = explain(y, z);
  EXPECT_NE(one.find("are made by one kernel"), std::string::npos) << one;
  EXPECT_NE(one.find("with a kernel for each operation: "), std::string::npos) << one;
  const Tensor w = ones({32, 8});
  w.eval();
  const Tensor p = matmul(x, w), m = p.max(-1);
  const std::string two = explain(p, m);
  EXPECT_NE(two.find("are made by two kernels"), std::string::npos) << two;
  EXPECT_NE(two.find("a reduction cannot end a contraction's kernel"), std::string::npos) << two;
  EXPECT_NE(two.find("predicted "), std::string::npos) << two;
  const std::string beside = explain(exp(x), exp(w));
  EXPECT_NE(beside.find("are made by one kernel"), std::string::npos) << beside;
  EXPECT_NE(beside.find("2 independent parts"), std::string::npos) << beside;
  const Tensor large = ones({1 << 20});
  large.eval();
  EXPECT_NE(explain(exp(large), exp(w)).find("neither reads what the other makes"),
            std::string::npos);
  EXPECT_NE(error_of(ErrorKind::State, [&] { explain(x, z); }).find("the first value is known"),
            std::string::npos);
}

// --- Rules before autodiff

/// The gradient of what `f` makes of x by a compiled function.
std::vector<float> gradient_of(const std::function<Tensor(const Tensor&)>& f, Tensor x,
                               CompileOptions options, std::string* said = nullptr) {
  x.set_requires_grad(true);
  auto g = compile(
      [&](const Tensor& at) {
        const Tensor y = f(at).sum();
        return grad(y, at);
      },
      options);
  const auto result = g(x).to_vector();
  if (said)
    *said = g.explain();
  return result;
}

TEST(BeforeAutodiff, TheForwardPartIsRewrittenAndCounted) {
  // What is computed of rows that are all one row is computed once.
  const auto f = [](const Tensor& x) { return exp(x.expand({5, 3})) + relu(relu(x)); };
  const Tensor x = tensor({-1.0, 0.0, 2.0});
  std::string quick, none;
  const auto with = gradient_of(f, x, {.effort = Effort::Quick}, &quick);
  const auto without = gradient_of(f, x, {.effort = Effort::None}, &none);
  for (std::size_t i = 0; i < 3; ++i) // gradients of equal rows are added in another order
    EXPECT_NEAR(with[i], without[i], 1e-5) << i;
  EXPECT_NE(quick.find("before autodiff, rules: "), std::string::npos) << quick;
  const std::string rules = quick.substr(0, quick.find("ops recorded"));
  EXPECT_NE(rules.find("[pull, exact]"), std::string::npos) << quick;
  EXPECT_EQ(none.find("before autodiff"), std::string::npos);
}

// Equal operands share a gradient: a maximum of maxima shares it in another way than one maximum.
TEST(BeforeAutodiff, RulesThatChangeGradientsAtTiesWait) {
  const auto f = [](const Tensor& x) { return maximum(maximum(x, 1.0), 1.0); };
  const Tensor x = tensor({0.5, 1.0, 2.0});
  EXPECT_EQ(gradient_of(f, x, {.effort = Effort::Quick}),
            gradient_of(f, x, {.effort = Effort::None}));
}

// The shift by the largest is part of what is rewritten, although no gradient passes it.
TEST(BeforeAutodiff, NoGradientPassesTheShiftByTheLargest) {
  const auto f = [](const Tensor& x) {
    const Tensor below = x - max(x, -1, true).detach();
    return below * below;
  };
  const Tensor x = tensor({1.0, 2.0, 4.0});
  const std::vector<float> expected = {-6, -4, 0};
  EXPECT_EQ(gradient_of(f, x, {.effort = Effort::None}), expected);
  EXPECT_EQ(gradient_of(f, x, {.effort = Effort::Quick}), expected);
}

// Without the marker that hides the variance's bound, the gradient of a small variance would be 0.
TEST(BeforeAutodiff, InferenceOnlyRulesWait) {
  const auto f = [](const Tensor& variance) {
    return gaussian_nll_loss(zeros({1}), ones({1}), variance, 0.5);
  };
  CompileOptions options{.effort = Effort::Quick};
  options.allow = RuleTags{RuleTag::InferenceOnly};
  EXPECT_NEAR(gradient_of(f, tensor({0.125}), options)[0], -1, 1e-6);
}

TEST(BeforeAutodiff, GradientsByInnerValuesStayWhatTheyAre) {
  auto g = compile(
      [](const Tensor& x) {
        const Tensor inner = exp(x), y = (inner * inner).sum();
        return grad(y, inner);
      },
      {.effort = Effort::Quick});
  Tensor x = tensor({0.0, 1.0});
  x.set_requires_grad(true);
  const auto result = g(x).to_vector();
  EXPECT_NEAR(result[0], 2, 1e-6);
  EXPECT_NEAR(result[1], 2 * std::exp(1.0), 1e-5);
}

} // namespace
} // namespace egret
