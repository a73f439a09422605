// A search keeps parameters in the layout that a kernel wants where whole programs are faster for
// it: remembered, and within memory limits.
#include "backend/cpu/cpu_device.h"
#include "backend/reference/reference.h"
#include "compiler/describe.h"
#include "compiler/pipeline.h"
#include "compiler/search/fusion_plans.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"
#include "support/scale.h"
#include "support/search_processes.h"
#include "support/tuning.h"

#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

using backend::reference::HostArray;
using ir::NodeId;

/// tanh(x w'), twice.
ir::Graph two_layers() {
  const Shape square{Expr(64), Expr(64)}, cube{Expr(8), Expr(64), Expr(64)};
  ir::Graph g;
  NodeId x = g.input("x", DType::F32, {Expr(8), Expr(64)});
  for (const char* name : {"w0", "w1"}) {
    const NodeId w = g.input(name, DType::F32, square);
    const NodeId left = g.expand(g.reshape(x, {Expr(8), Expr(1), Expr(64)}), cube);
    const NodeId right = g.expand(g.reshape(w, {Expr(1), Expr(64), Expr(64)}), cube);
    x = g.unary(Op::Tanh, g.reduce(Op::ReduceSum, g.binary(Op::Mul, left, right), {2}));
  }
  g.outputs = {x};
  return g;
}

/// Likes what has more inputs, and nothing else.
std::vector<std::vector<double>> likes_kept(const Compiled& best, const Compiled& challenger) {
  const std::size_t now = best.report.graph.inputs().size(),
                    then = challenger.report.graph.inputs().size();
  return {std::vector<double>(9, 1e-3), std::vector<double>(9, then > now ? 5e-4 : 2e-3)};
}

class LayoutSearches : public ::testing::Test {
protected:
  struct Ran {
    std::string fusion_plan;
    double kept_bytes = 0;
    std::int64_t measured = 0;
    std::string text;
  };

  Ran run(const std::optional<std::filesystem::path>& folder, std::vector<bool> steady,
          std::optional<std::int64_t> limit = {}) {
    TunerOptions tuning;
    tuning.worker = {"cpu", EGRET_TEST_TOOL, 60 * test::scale()};
    tuning.folder = folder;
    tuning.propose = [](const kernel::Region& region, const kernel::Target& target,
                        const Machine& machine, const backend::reference::Bindings& sizes,
                        Effort) { return candidates_of(region, target, machine, sizes, 1, 2); };
    Tuner tuner(*device_, tuning);
    KernelCache cache;
    Options options;
    options.effort = Effort::Search;
    options.tuner = &tuner;
    options.budget_seconds = 40 * test::scale();
    options.steady = std::move(steady);
    options.memory_limit = limit;
    const ir::Graph graph = two_layers();
    FusionPlanSearch search(graph, {normal_form(graph)}, options, *device_, cache, nullptr,
                            likes_kept);
    const FusionPlan plan = search.run();
    const Compiled compiled = compiled_of(plan.compilation);
    Ran ran{compiled.report.search.fusion_plan, 0, compiled.report.search.measured,
            compiled.report.search.text()};
    const std::vector<HostArray> inputs = testing::random_inputs(graph, 3);
    std::vector<HostArray> all = inputs;
    if (const LayoutAssignment* assigned = plan.compilation.layouts.get()) {
      ran.kept_bytes = assigned->kept_bytes;
      std::vector<HostArray> from;
      for (const std::size_t source : assigned->sources)
        from.push_back(inputs[source]);
      if (!from.empty())
        for (HostArray& array : backend::reference::execute(assigned->fill, from))
          all.push_back(std::move(array));
    }
    const auto actual =
        testing::run_plan(compiled, plan.compilation.candidate->graph(), all, device_.get());
    const auto right =
        backend::reference::compare(actual[0], backend::reference::expect(graph, inputs)[0], "y");
    EXPECT_TRUE(right.ok) << right.message;
    return ran;
  }

  std::unique_ptr<backend::Device> device_ = backend::cpu::make_cpu_device(2);
};

TEST_F(LayoutSearches, WhatIsFasterIsKeptAndRemembered) {
  const test::TempFolder folder;
  const std::vector<bool> steady{false, true, true};
  const Ran first = run(folder.path(), steady);
  EXPECT_GE(first.kept_bytes, 2 * 64 * 64 * 4) << first.text;
  EXPECT_NE(first.text.find(" kept in panels of"), std::string::npos) << first.text;
  const Ran again = run(folder.path(), steady);
  EXPECT_EQ(again.fusion_plan, first.fusion_plan);
  EXPECT_EQ(again.kept_bytes, first.kept_bytes);
  EXPECT_EQ(again.measured, 0) << again.text;
  // The same graph of arguments is another program.
  EXPECT_EQ(run(folder.path(), {}).kept_bytes, 0);
}

TEST_F(LayoutSearches, WhatIsKeptCountsAgainstAMemoryLimit) {
  const std::vector<bool> steady{false, true, true};
  EXPECT_GT(run(std::nullopt, steady, 1 << 20).kept_bytes, 0);
  const Ran small = run(std::nullopt, steady, 14 << 10);
  EXPECT_EQ(small.kept_bytes, 0) << small.text;
  EXPECT_NE(small.text.find("above the memory limit"), std::string::npos) << small.text;
}

} // namespace
} // namespace egret::compiler
