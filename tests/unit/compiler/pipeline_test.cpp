// The table of passes: its order, what it prints, what its verifiers find.
#include "compiler/pipeline.h"

#include "backend/cpu/cpu_device.h"
#include "compiler/compile.h"
#include "compiler/pass_forms.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace egret::compiler {
namespace {

using ir::Graph;
using ir::NodeId;

/// A softmax of rows over their largest elements, and its column sums: it has two kernels.
Graph softmax_graph() {
  Graph g;
  const Shape square{Expr(64), Expr(64)}, column{Expr(64), Expr(1)};
  const NodeId x = g.unary(Op::Tanh, g.input("x", DType::F32, square));
  const NodeId most = g.expand(g.reshape(g.reduce(Op::ReduceMax, x, {1}), column), square);
  const NodeId e = g.unary(Op::Exp, g.binary(Op::Div, x, most));
  const NodeId sum = g.expand(g.reshape(g.reduce(Op::ReduceSum, e, {1}), column), square);
  const NodeId rows = g.binary(Op::Div, e, sum);
  g.outputs = {g.reduce(Op::ReduceSum, g.permute(rows, {1, 0}), {1}), rows};
  return g;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Pass& pass : pipeline())
    all.emplace_back(pass.name);
  return all;
}

class Pipeline : public ::testing::Test {
protected:
  Compiled compile(const Options& options) {
    return compile_graph(softmax_graph(), options, *device_, cache_);
  }
  std::unique_ptr<backend::Device> device_ = backend::cpu::make_cpu_device(2);
  KernelCache cache_;
};

TEST(PipelineTable, NamesAreUniqueAndPhasesInOrder) {
  std::set<std::string_view> seen;
  Phase last = Phase::Program;
  for (const Pass& pass : pipeline()) {
    EXPECT_TRUE(seen.insert(pass.name).second) << pass.name;
    EXPECT_GE(pass.phase, last) << pass.name;
    last = pass.phase;
    EXPECT_TRUE(pass.run && pass.verify && pass.print) << pass.name;
    EXPECT_FALSE(pass.what.empty()) << pass.name;
    EXPECT_EQ(&find_pass(pass.name, "test"), &pass);
  }
}

TEST(PipelineTable, IsTheOneOfTheDocumentation) {
  std::ifstream file(EGRET_TEST_SOURCE_DIR "/../docs/compiler.md");
  ASSERT_TRUE(file);
  std::vector<std::string> documented, phases;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## "))
      inside = line == "## Passes";
    if (!inside || !line.starts_with("| ") || line.starts_with("| pass "))
      continue;
    std::istringstream words(line);
    std::string bar, name, phase;
    words >> bar >> name >> bar >> phase;
    documented.push_back(name);
    phases.push_back(phase);
  }
  ASSERT_EQ(documented, names());
  for (std::size_t i = 0; i < phases.size(); ++i)
    EXPECT_EQ(phases[i], name_of(pipeline()[i].phase)) << documented[i];
}

TEST(PipelineTable, AnUnknownNameIsRefusedWithTheNearestOne) {
  for (const auto& [wrong, near] : {std::pair{"partion", "partition"},
                                    {"attention", "attention-delta"},
                                    {"Batch", "batch"},
                                    {"plan_memory", "plan-memory"}})
    try {
      find_pass(wrong, "--print-after");
      ADD_FAILURE() << wrong << " was found";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Value);
      const std::string said = error.what();
      EXPECT_TRUE(said.starts_with("--print-after: `")) << said;
      EXPECT_NE(said.find("did you mean `" + std::string(near) + "`?"), std::string::npos) << said;
    }
}

TEST_F(Pipeline, EveryPassThatRanIsTimedInOrder) {
  const std::vector<std::string> all = names();
  for (const Effort effort : {Effort::None, Effort::Quick}) {
    Options options;
    options.effort = effort;
    const CompileReport report = compile(options).report;
    std::vector<std::string> ran;
    for (const PassTime& time : report.passes) {
      EXPECT_GE(time.seconds, 0);
      ran.push_back(time.pass);
    }
    const auto place = [&](const std::string& name) { return std::ranges::find(all, name); };
    EXPECT_TRUE(std::ranges::is_sorted(ran, {}, place));
    EXPECT_EQ(std::ranges::count(ran, "saturate"), effort == Effort::None ? 0 : 1);
    for (const char* pass : {"normalize", "attention-delta", "partition", "batch",
                             "propose-schedules", "plan-memory", "generate-code"}) {
      EXPECT_EQ(std::ranges::count(ran, pass), 1) << pass;
      EXPECT_NE(report.text().find(pass), std::string::npos) << pass;
    }
  }
}

TEST_F(Pipeline, EachPassIsPrintedBeforeAndAfter) {
  Options options;
  options.effort = Effort::Quick;
  options.verify_passes = true;
  std::vector<std::string> seen, of_given;
  std::map<std::string, PassEvent, std::less<>> events;
  options.after_pass = [&](const PassEvent& event) {
    if (event.fusion_plan == "graph 2 of 2") { // as it was before the rules, a candidate, too
      of_given.emplace_back(event.pass);
      return;
    }
    seen.emplace_back(event.pass);
    events.emplace(event.pass, event);
  };
  const Compiled compiled = compile(options);
  std::vector<std::string> timed;
  for (const PassTime& time : compiled.report.passes)
    timed.push_back(time.pass);
  EXPECT_EQ(seen, timed);
  for (const char* pass : {"normalize", "views"})
    EXPECT_EQ(std::ranges::count(of_given, pass), 1) << pass;
  // Each pass begins with what the one before it gave.
  EXPECT_EQ(events.at("attention-delta").before, events.at("sink-reshapes").after);
  EXPECT_FALSE(events.at("attention-delta").changed());
  EXPECT_EQ(events.at("prepare-outputs").after, ir::print(compiled.report.graph));
  EXPECT_TRUE(events.at("partition").changed());
  EXPECT_NE(events.at("partition").after.find("reduce"), std::string::npos);
  EXPECT_TRUE(events.at("canonicalize").changed());
  const auto steps = [](const std::string& plan) { return plan.substr(plan.find('\n')); };
  EXPECT_EQ(steps(events.at("plan-memory").after), steps(kernel::print(compiled.plan)));
}

TEST_F(Pipeline, RandomGraphsPassEveryVerifier) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Graph graph = testing::random_graph(seed, {.ops = 20, .symbolic = seed % 3 == 0});
    Options options;
    options.effort = seed % 2 ? Effort::None : Effort::Quick;
    options.verify_passes = true;
    EXPECT_NO_THROW(compile_graph(graph, options, *device_, cache_)) << ir::print(graph);
  }
}

TEST(PassVerifiers, FindAPartitionThatIsNone) {
  const auto candidate = normal_form(softmax_graph());
  const kernel::Target target = backend::cpu::make_cpu_device(1)->target();
  const Partition good = partition_for(*candidate, {}, target).partition;
  ASSERT_GE(good.groups.size(), 2u);
  EXPECT_NO_THROW(verify(candidate->facts(), good));
  Partition twice = good;
  twice.groups.push_back(twice.groups[0]);
  EXPECT_THROW(verify(candidate->facts(), twice), InternalError);
  Partition missing = good;
  missing.groups.pop_back();
  EXPECT_THROW(verify(candidate->facts(), missing), InternalError);
  Partition late = good;
  std::reverse(late.groups.begin(), late.groups.end());
  EXPECT_THROW(verify(candidate->facts(), late), InternalError);
}

TEST(PassVerifiers, FindRegionsAndSchedulesThatDoNotBelongTogether) {
  const auto candidate = normal_form(softmax_graph());
  const auto device = backend::cpu::make_cpu_device(1);
  const Options options;
  Partitioned parts = with_launches(*candidate, options, device->target());
  EXPECT_NO_THROW(verify(parts.regions, candidate->graph()));
  Proposer proposer(options, device->target());
  Proposed proposed = proposer.propose(candidate->graph(), parts.regions, 0);
  EXPECT_NO_THROW(verify(proposed, parts.regions));
  proposed.entry_of.back() = static_cast<int>(proposed.entries.size());
  EXPECT_THROW(verify(proposed, parts.regions), InternalError);
  proposed.entry_of.pop_back();
  EXPECT_THROW(verify(proposed, parts.regions), InternalError);
  parts.regions[0].operands.pop_back();
  EXPECT_THROW(verify(parts.regions, candidate->graph()), InternalError);
}

} // namespace
} // namespace egret::compiler
