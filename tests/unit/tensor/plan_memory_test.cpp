// The store of plans is bounded in bytes, whoever refers to a plan.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/nn.h"
#include "egret/optim.h"
#include "runtime/plan_store.h"
#include "runtime/runtime.h"
#include "support/files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

namespace egret {
namespace {

// Puts the bound back.
struct Bound {
  explicit Bound(std::size_t bytes) { set_plan_memory(bytes); }
  ~Bound() { set_plan_memory(runtime::PlanStore::kDefaultLimit); }
};

// Training steps of `sizes` batch sizes under a bound of four plans or so.
void expect_bounded(int sizes) {
  runtime::Runtime::instance().clear_plans();
  Bound bound(std::size_t{64} << 20);
  Generator g(1);
  nn::Sequential<nn::Linear, nn::Relu, nn::Linear> model(nn::Linear(8, 16, g), nn::Relu{},
                                                         nn::Linear(16, 4, g));
  optim::AdamW optimizer(nn::named_parameters(model), {.lr = 1e-3});
  auto step = compile(
      [&](const Tensor& x, const Tensor& y) {
        optimizer.zero_grad();
        Tensor loss = cross_entropy(model(x), y);
        loss.backward();
        optimizer.step();
        return loss;
      },
      {.limit = 400});
  const auto run = [&](int batch) {
    return step(ones({batch, 8}).eval(), zeros({batch}, DType::I64).eval()).item();
  };
  run(1);
  const std::size_t limit = 4 * counters().plan_bytes;
  EXPECT_LT(counters().plan_bytes, 2u << 20);
  set_plan_memory(limit);
  const Counters before = counters();
  for (int batch = 2; batch <= sizes; ++batch) {
    run(batch);
    ASSERT_LE(counters().plan_bytes, limit) << "batch " << batch;
  }
  EXPECT_EQ(step.traces(), std::size_t(sizes));
  EXPECT_GT((counters() - before).plans_evicted, 0u);
  // An evicted plan is compiled again.
  const std::uint64_t compiles = counters().compiles;
  EXPECT_TRUE(std::isfinite(run(1)));
  EXPECT_GT(counters().compiles, compiles);
}

TEST(PlanMemory, StepsOfManyBatchSizesStayWithinTheBound) {
  expect_bounded(12);
}

TEST(PlanMemory, SoDoMoreOfThemOnTheInterpreter) {
  auto& runtime = runtime::Runtime::instance();
  runtime.use(runtime::Engine::Interpreter);
  expect_bounded(64);
  runtime.use(runtime::Engine::Compiled);
}

TEST(PlanMemory, WhatRanLeastRecentlyLeavesFirst) {
  auto& runtime = runtime::Runtime::instance();
  runtime.clear_plans();
  auto f = compile([](const Tensor& x) { return exp(x) * 2 + x.sum(); });
  const auto call = [&](int n) {
    const std::uint64_t before = counters().compiles;
    EXPECT_EQ(f(zeros({n}).eval()).to_vector(), std::vector<float>(std::size_t(n), 2.0f));
    return counters().compiles - before;
  };
  for (int n : {3, 4, 5, 6})
    call(n);
  runtime.clear_plans();
  EXPECT_GE(call(3), 1u) << "a function does not keep a plan that has left";
  EXPECT_EQ(call(3), 0u);
  const std::size_t one = counters().plan_bytes;
  call(4);
  Bound bound(counters().plan_bytes + one / 2); // no third one
  call(3);
  call(5);
  EXPECT_EQ(call(3), 0u) << "it ran after the one of 4";
  EXPECT_EQ(call(5), 0u);
  EXPECT_GE(call(4), 1u);
}

TEST(PlanMemory, TheNewestPlanStaysHoweverSmallTheBound) {
  Bound bound(1);
  const Tensor x = ones({7}).eval();
  auto f = compile([](const Tensor& t) { return tanh(t) + 1; });
  f(x).eval();
  const std::uint64_t compiles = counters().compiles;
  f(x).eval();
  EXPECT_EQ(counters().compiles, compiles);
}

TEST(PlanMemory, APlanKeepsNoStatementsButShowsThem) {
  auto& runtime = runtime::Runtime::instance();
  ir::Graph g;
  const ir::NodeId x = g.input("x", DType::F32, {64, 64});
  g.outputs = {g.reduce(Op::ReduceSum, g.unary(Op::Exp, x), {1})};
  const auto program = runtime.program(g);
  EXPECT_NE(program->loops().find("for"), std::string::npos) << program->loops();
  EXPECT_NE(program->code().find("define"), std::string::npos);
  EXPECT_GT(program->bytes(), 1000u);
  EXPECT_LT(program->bytes(), 200u << 10);
}

TEST(PlanMemory, TheVariableIsANumberOfMegabytes) {
  ::setenv("EGRET_PLANS_MB", "12", 1);
  EXPECT_EQ(runtime::plan_limit_of_environment(), std::size_t{12} << 20);
  for (const char* bad : {"0", "-1", "1.5", "many", "1000001"}) {
    ::setenv("EGRET_PLANS_MB", bad, 1);
    EXPECT_EQ(test::error_of(ErrorKind::Value, [] { runtime::plan_limit_of_environment(); }),
              std::string("EGRET_PLANS_MB: \"") + bad + "\" is no number from 1 to 1000000");
  }
  ::unsetenv("EGRET_PLANS_MB");
  EXPECT_EQ(runtime::plan_limit_of_environment(), runtime::PlanStore::kDefaultLimit);
}

} // namespace
} // namespace egret
