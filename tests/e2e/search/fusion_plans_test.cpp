// A search over how a program is cut into kernels: what is faster is kept, remembered and right.
#include "backend/reference/reference.h"
#include "compiler/describe.h"
#include "compiler/pipeline.h"
#include "compiler/search/fusion_plans.h"
#include "compiler/search/timing.h"
#include "support/cpu_levels.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"
#include "support/scale.h"
#include "support/search_processes.h"
#include "support/tuning.h"

#include <gtest/gtest.h>
#include <thread>

namespace egret::compiler {
namespace {

using ir::NodeId;

/// Two layers of exp(x w) whose rows are normalized: values with several readers, products,
/// reductions.
ir::Graph layers() {
  constexpr std::int64_t kN = 96;
  const Shape square{Expr(kN), Expr(kN)}, cube{Expr(kN), Expr(kN), Expr(kN)};
  ir::Graph g;
  NodeId x = g.input("x", DType::F32, square);
  for (const char* name : {"w0", "w1"}) {
    const NodeId w = g.input(name, DType::F32, square);
    const NodeId left = g.expand(g.reshape(x, {Expr(kN), Expr(kN), Expr(1)}), cube);
    const NodeId right = g.expand(g.reshape(w, {Expr(1), Expr(kN), Expr(kN)}), cube);
    const NodeId product = g.reduce(Op::ReduceSum, g.binary(Op::Mul, left, right), {1});
    const NodeId bent = g.unary(Op::Tanh, product);
    const NodeId sum = g.reduce(Op::ReduceSum, g.unary(Op::Exp, bent), {1});
    x = g.binary(Op::Div, bent, g.expand(g.reshape(sum, {Expr(kN), Expr(1)}), square));
  }
  g.outputs = {x};
  return g;
}

/// Says that the challenger is twice as fast unless it has fewer launches.
std::vector<std::vector<double>> likes_many(const Compiled& best, const Compiled& challenger) {
  const double ratio = challenger.plan.steps.size() >= best.plan.steps.size() ? 0.5 : 2;
  return {std::vector<double>(9, 1e-3), std::vector<double>(9, ratio * 1e-3)};
}

class FusionPlanSearches : public ::testing::Test {
protected:
  struct Ran {
    Compiled compiled;
    std::string fusion_plan;
  };

  Ran run(const std::optional<std::filesystem::path>& folder, const CompareFusionPlans& compare,
          bool frozen = false) {
    TunerOptions tuning;
    tuning.worker = {"cpu", EGRET_TEST_TOOL, 60 * test::scale()};
    tuning.folder = folder;
    // One other candidate a region is enough here.
    tuning.propose = [](const kernel::Region& region, const kernel::Target& target,
                        const Machine& machine, const backend::reference::Bindings& sizes,
                        Effort) { return candidates_of(region, target, machine, sizes, 1, 2); };
    Tuner tuner(*device_, tuning);
    KernelCache cache;
    Options options;
    options.effort = Effort::Search;
    options.tuner = &tuner;
    options.frozen = frozen;
    options.budget_seconds = 40 * test::scale();
    options.progress = progress_;
    options.memory_limit = limit_;
    const ir::Graph graph = layers();
    FusionPlanSearch search(graph, {normal_form(graph)}, options, *device_, cache, nullptr,
                            compare);
    Ran ran{compiled_of(search.run().compilation), {}};
    ran.fusion_plan = ran.compiled.report.search.fusion_plan;
    std::vector<backend::reference::HostArray> inputs = testing::random_inputs(graph, 3);
    const auto expected = backend::reference::expect(graph, inputs);
    const auto actual = testing::run_plan(ran.compiled, graph, inputs, device_.get());
    const auto right = backend::reference::compare(actual[0], expected[0], "y");
    EXPECT_TRUE(right.ok) << right.message;
    return ran;
  }

  static std::int64_t taken(const SearchReport& report) {
    return std::ranges::count(report.fusion_plans, "taken", &FusionPlanReport::state);
  }

  std::unique_ptr<backend::Device> device_ = backend::cpu::make_cpu_device(2);
  std::function<bool(const SearchProgress&)> progress_;
  std::optional<std::int64_t> limit_;
};

TEST_F(FusionPlanSearches, WhatIsFasterIsKeptAndRemembered) {
  const test::TempFolder folder;
  const Ran first = run(folder.path(), likes_many);
  const SearchReport& report = first.compiled.report.search;
  EXPECT_GE(taken(report), 2) << report.text(); // one on top of another
  EXPECT_GT(parse_fusion_plan(first.fusion_plan).moves.size(), 1u);
  const std::string text = report.text();
  EXPECT_NE(text.find("taken"), std::string::npos) << text;
  EXPECT_NE(text.find("predicted"), std::string::npos) << text;

  const Ran greedy = run(std::nullopt, [](const Compiled&, const Compiled&) {
    return std::vector<std::vector<double>>{{1.0, 1.0}, {1.0, 1.0}};
  });
  EXPECT_EQ(taken(greedy.compiled.report.search), 0);
  EXPECT_GT(first.compiled.plan.steps.size(), greedy.compiled.plan.steps.size());

  for (const bool frozen : {false, true}) { // as another process would
    const Ran again = run(folder.path(), likes_many, frozen);
    EXPECT_EQ(again.fusion_plan, first.fusion_plan) << frozen;
    EXPECT_EQ(again.compiled.report.search.measured, 0) << again.compiled.report.search.text();
    EXPECT_TRUE(again.compiled.report.search.fusion_plans.empty());
    EXPECT_EQ(again.compiled.plan.steps.size(), first.compiled.plan.steps.size());
  }
  TuningDatabase database(folder.path());
  EXPECT_TRUE(database.verify().empty());

  limit_ = 1 << 30; // what was chosen without a limit is not taken for one with it
  EXPECT_FALSE(run(folder.path(), likes_many).compiled.report.search.fusion_plans.empty());
}

/// The running maximum of each row, taken `times` times.
ir::Graph running_maxima(int times) {
  ir::Graph g;
  NodeId x = g.input("x", DType::F32, {Expr(512), Expr(512)});
  for (int i = 0; i < times; ++i)
    x = g.scan(Op::ScanMax, x, 1);
  g.outputs = {x};
  return g;
}

TEST_F(FusionPlanSearches, PredictionsDecideBetweenGraphsWhereNothingIsMeasured) {
  TunerOptions tuning;
  tuning.worker = {"cpu", EGRET_TEST_TOOL, 60 * test::scale()};
  Tuner tuner(*device_, tuning);
  KernelCache cache;
  Options options;
  options.effort = Effort::Quick;
  options.tuner = &tuner;
  const auto once = normal_form(running_maxima(1)), thrice = normal_form(running_maxima(3));
  const auto chosen = [&](CandidateGraphs graphs) {
    const FusionPlan plan =
        FusionPlanSearch(running_maxima(3), std::move(graphs), options, *device_, cache).run();
    const Compiled compiled = compiled_of(plan.compilation);
    std::vector<backend::reference::HostArray> inputs =
        testing::random_inputs(running_maxima(1), 3);
    const auto actual = testing::run_plan(compiled, running_maxima(1), inputs, device_.get());
    const auto right = backend::reference::compare(
        actual[0], backend::reference::expect(running_maxima(1), inputs)[0], "y");
    EXPECT_TRUE(right.ok) << right.message;
    return compiled.report.search;
  };
  const SearchReport less = chosen({thrice, once});
  EXPECT_EQ(less.fusion_plan, "fusion_plan graph=1");
  ASSERT_EQ(less.fusion_plans.size(), 1u);
  EXPECT_EQ(less.fusion_plans[0].what, "candidate graph 1");
  EXPECT_EQ(less.fusion_plans[0].state, "taken");
  EXPECT_LT(less.fusion_plans[0].predicted, 0.97);
  EXPECT_NE(less.text().find("taken     candidate graph 1, predicted 0."), std::string::npos)
      << less.text();
  const SearchReport more = chosen({once, thrice});
  EXPECT_EQ(more.fusion_plan, "fusion_plan graph=0");
  ASSERT_EQ(more.fusion_plans.size(), 1u);
  EXPECT_EQ(more.fusion_plans[0].state, "untried");
  EXPECT_GT(more.fusion_plans[0].predicted, 1);
  // Who looks on from pass to pass does so in one thread.
  int seen = 0;
  options.after_pass = [&, here = std::this_thread::get_id()](const PassEvent&) {
    ++seen;
    EXPECT_EQ(std::this_thread::get_id(), here);
  };
  EXPECT_EQ(chosen({thrice, once}).fusion_plan, "fusion_plan graph=1");
  EXPECT_GT(seen, 0);
}

TEST_F(FusionPlanSearches, TimesDecideOtherwise) {
  const test::TempFolder folder;
  const Ran ran = run(folder.path(), {});
  const SearchReport& report = ran.compiled.report.search;
  ASSERT_FALSE(report.fusion_plans.empty()) << report.text();
  for (const FusionPlanReport& trial : report.fusion_plans)
    if (trial.state == "taken" || trial.state == "slower") {
      EXPECT_GT(trial.ratio, 0) << trial.what;
      EXPECT_GT(trial.seconds, 0) << trial.what;
      // And it was faster in most rounds: where others disturb the machine, a good ratio alone
      // decides nothing.
      if (trial.state == "taken") {
        EXPECT_LE(trial.ratio, PickOptions{}.ratio) << trial.what;
      }
    }
  EXPECT_EQ(run(folder.path(), {}).compiled.report.search.measured, 0);
}

TEST_F(FusionPlanSearches, ASearchThatIsEndedDecidesNothing) {
  const test::TempFolder folder;
  progress_ = [](const SearchProgress& p) { return p.kernel != "program"; };
  const Ran ended = run(folder.path(), likes_many);
  EXPECT_EQ(ended.compiled.report.search.fusion_plan_note, "the search was ended");
  EXPECT_EQ(taken(ended.compiled.report.search), 0);
  progress_ = {};
  EXPECT_GE(taken(run(folder.path(), likes_many).compiled.report.search), 1); // it goes on
}

TEST(DivisionText, ParsesBackAndRefusesOthers) {
  FusionPlanChoice choice{2, {0x0123456789abcdefULL, 11}};
  std::sort(choice.moves.begin(), choice.moves.end());
  EXPECT_EQ(parse_fusion_plan(to_string(choice)), choice);
  EXPECT_EQ(to_string(FusionPlanChoice{}), "fusion_plan graph=0");
  for (const char* bad : {"rows rows=1", "fusion_plan graph=-1", "fusion_plan graph=64",
                          "fusion_plan m12=1", "fusion_plan mzzzzzzzzzzzzzzzz=1", ""})
    EXPECT_THROW(parse_fusion_plan(bad), Error) << bad;
}

} // namespace
} // namespace egret::compiler
