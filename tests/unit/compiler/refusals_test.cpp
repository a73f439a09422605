// A kernel that does not pass verification: another schedule takes its place, is counted and
// reported, and the result is right.
#include "egret/counters.h"
#include "egret/error.h"
#include "runtime/debug.h"
#include "runtime/runtime.h"
#include "support/bad_kernels.h"
#include "support/cpu_levels.h"

#include <gtest/gtest.h>

#include <cmath>

namespace egret {
namespace {

/// y = tanh(x), of which the first program has a loop around a value that nothing made.
std::shared_ptr<const runtime::Program> planted(ir::Graph& g) {
  const ir::NodeId x = g.input("x", DType::F32, {Expr(100)});
  g.outputs = {g.add(Op::Tanh, std::vector<ir::NodeId>{x})};
  compiler::Options options;
  options.inject_fault = [](kernel::Region&, kernel::Chosen& chosen) {
    kernel::each_statement(chosen.program.body, [](kernel::Stmt& s) {
      if (auto* store = kernel::get_if<kernel::Store>(s))
        store->value = kernel::ValueId(100000);
    });
  };
  return runtime::Runtime::instance().program(g, options);
}

TEST(Refusals, AnInvalidProgramIsReplacedCountedAndReported) {
  const testing::ScopedEnvironment strict("EGRET_STRICT", "0");
  auto& runtime = runtime::Runtime::instance();
  const Counters before = counters();
  runtime::set_debug_level(1);
  ::testing::internal::CaptureStderr();
  ir::Graph g;
  const auto program = planted(g);
  runtime::set_debug_level(0);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ((counters() - before).kernels_refused, 1u);
  EXPECT_NE(counters().text().find("kernels refused"), std::string::npos);
  ASSERT_EQ(program->report().refused.size(), 1u);
  const compiler::RefusedKernel& r = program->report().refused[0];
  EXPECT_NE(r.schedule, r.instead);
  EXPECT_NE(r.reason.find("100000"), std::string::npos) << r.reason;
  EXPECT_NE(program->report().text().find("refused: kernel "), std::string::npos);
  EXPECT_NE(said.find("egret: refused: kernel "), std::string::npos) << said;

  std::vector<float> values(100);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 0.05f * static_cast<float>(i) - 2;
  runtime::RunInput input;
  input.storage = runtime.allocate(400);
  runtime.copy_in(input.storage, values.data(), 400);
  const auto outputs = program->run(std::span(&input, 1));
  std::vector<float> results(100);
  runtime.copy_out(results.data(), outputs.at(0), 400);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(results[i], std::tanh(values[i]), 1e-6) << i;
}

TEST(Refusals, AreErrorsInStrictMode) {
  const testing::ScopedEnvironment strict("EGRET_STRICT", "1");
  ir::Graph g;
  EXPECT_THROW(planted(g), InternalError);
}

} // namespace
} // namespace egret
