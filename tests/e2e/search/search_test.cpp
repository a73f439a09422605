// Searches from end to end: bad candidates are rejected and named, what won is remembered, and a
// second process measures nothing.
#include "compiler/compile.h"
#include "compiler/search/tuner.h"
#include "support/bad_kernels.h"
#include "support/cpu_levels.h"
#include "support/scale.h"
#include "support/search_processes.h"
#include "support/tuning.h"

#include <chrono>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>

namespace egret::compiler {
namespace {

using namespace egret::testing;

// y = tanh(x * x) over some elements.
ir::Graph elementwise_graph(std::int64_t elements) {
  ir::Graph g;
  const ir::NodeId x = g.input("x", DType::F32, {Expr(elements)});
  g.outputs = {g.add(Op::Tanh, std::vector<ir::NodeId>{g.binary(Op::Mul, x, x)})};
  return g;
}

backend::Device& search_device() {
  static const auto made = backend::cpu::make_cpu_device(2);
  return *made;
}

TunerOptions tuner_options(const std::optional<std::filesystem::path>& folder) {
  TunerOptions options;
  options.worker = {"cpu", EGRET_TEST_TOOL, 60 * test::scale()};
  options.folder = folder;
  return options;
}

CompileReport compile_with(Tuner& tuner, const ir::Graph& graph, Effort effort = Effort::Search,
                           bool frozen = false, double budget = 60 * test::scale()) {
  KernelCache cache;
  Options options;
  options.effort = effort;
  options.tuner = &tuner;
  options.frozen = frozen;
  options.budget_seconds = budget;
  return compile_graph(graph, options, search_device(), cache).report;
}

const CandidateReport* candidate(const CompileReport& report, const std::string& generator) {
  for (const RegionSearch& r : report.search.regions)
    for (const CandidateReport& c : r.candidates)
      if (c.schedule.starts_with(generator))
        return &c;
  return nullptr;
}

// The CPU as a device that says something of a library.
class WithLibrary final : public backend::Device {
public:
  explicit WithLibrary(backend::ProductLibrary library) : library_(std::move(library)) {}
  const kernel::Target& target() const override { return search_device().target(); }
  void* allocate(std::size_t bytes) override { return search_device().allocate(bytes); }
  void release(void* memory, std::size_t bytes) noexcept override {
    search_device().release(memory, bytes);
  }
  std::shared_ptr<const backend::Artifact> compile(const kernel::KernelProgram& program) override {
    return search_device().compile(program);
  }
  void launch(const backend::Artifact& artifact, const kernel::KernelProgram& program,
              const kernel::ArgBlock& block, int workers) override {
    search_device().launch(artifact, program, block, workers);
  }
  void synchronize() override { search_device().synchronize(); }
  backend::ProductLibrary product_library() override {
    ++asked;
    return library_;
  }
  int asked = 0;

private:
  backend::ProductLibrary library_;
};

// The usual candidates, and behind the greedy one some that are spoilt.
TunerOptions with_planted(const std::filesystem::path& folder) {
  TunerOptions options = tuner_options(folder);
  options.propose = [](const kernel::Region& region, const kernel::Target& target,
                       const Machine& machine, const backend::reference::Bindings& sizes, Effort) {
    Candidates usual = candidates_of(region, target, machine, sizes, 2, 3);
    Candidates all;
    all.list.push_back(usual.list[0]);
    auto plant = [&](const std::string& name, auto&& spoil) {
      CandidateMeasurement trial;
      trial.program = usual.list[0].program;
      spoil(trial);
      Candidate bad = usual.list[0];
      bad.schedule.generator = name;
      bad.program = std::move(trial.program);
      bad.hash = kernel::hash_of(bad.program);
      all.list.push_back(std::move(bad));
    };
    plant("planted_wrong",
          [](CandidateMeasurement& t) { replace_op(t.program.body, Op::Mul, Op::Add); });
    plant("planted_outside", [](CandidateMeasurement& t) { spoil_stores(t, 16); });
    plant("planted_crash", [](CandidateMeasurement& t) { spoil_stores(t, std::int64_t{1} << 40); });
    plant("planted_hang", spoil_loops);
    for (std::size_t i = 1; i < usual.list.size(); ++i)
      all.list.push_back(usual.list[i]);
    return all;
  };
  return options;
}

TEST(Search, RejectsWhatIsWrongCrashesOrHangsAndNamesIt) {
  testing::let_children_crash();
  const test::TempFolder folder;
  Tuner tuner(search_device(), with_planted(folder.path()));
  const CompileReport report = compile_with(tuner, elementwise_graph(1 << 18));
  ASSERT_EQ(report.search.regions.size(), 1u) << report.text();
  for (const auto& [name, state, says] :
       {std::tuple{"planted_wrong", "wrong", "element "},
        std::tuple{"planted_outside", "wrong", "writes out of bounds"},
        std::tuple{"planted_crash", "crash", "signal 11"},
        std::tuple{"planted_hang", "hang", "did not end within"}}) {
    const CandidateReport* found = candidate(report, name);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(found->state, state) << name;
    EXPECT_NE(found->message.find(says), std::string::npos) << found->message;
  }
  EXPECT_EQ(report.search.rejected(), 4);
  EXPECT_EQ(report.search.regions[0].chosen.find("planted"), std::string::npos);
  EXPECT_NE(report.text().find("planted_hang"), std::string::npos);
  // Their fate is remembered: a search that goes on does not wait for the hang again.
  TuningDatabase database(folder.path());
  const auto stats = database.stats(tuning_version());
  EXPECT_EQ(stats.rejected, 4);
}

TEST(Search, AGreedyKernelThatIsWrongLosesToOneThatIsRight) {
  const testing::ScopedEnvironment strict("EGRET_STRICT", "0");
  TunerOptions options = tuner_options(std::nullopt);
  options.propose = [](const kernel::Region& region, const kernel::Target& target,
                       const Machine& machine, const backend::reference::Bindings& sizes, Effort) {
    Candidates all = candidates_of(region, target, machine, sizes, 2, 3);
    replace_op(all.list[0].program.body, Op::Mul, Op::Add);
    return all;
  };
  Tuner tuner(search_device(), std::move(options));
  const CompileReport report = compile_with(tuner, elementwise_graph(1 << 18));
  ASSERT_EQ(report.search.regions.size(), 1u);
  EXPECT_EQ(report.search.regions[0].candidates[0].state, "wrong");
  EXPECT_EQ(report.search.regions[0].chosen, report.search.regions[0].candidates[1].schedule);
  ASSERT_EQ(report.refused.size(), 1u);
  EXPECT_EQ(report.refused[0].schedule, report.search.regions[0].candidates[0].schedule);
  EXPECT_EQ(report.refused[0].instead, report.search.regions[0].chosen);
  EXPECT_EQ(report.refused[0].reason.rfind("wrong: ", 0), 0u) << report.refused[0].reason;
}

// The first search that may remember them measures the figures of the machine. Quick ranks by round
// ones, measured or not, so that a busy machine changes nothing.
TEST(Search, FiguresAreMeasuredOnceAndQuickRanksByRoundOnes) {
  const test::TempFolder folder;
  const ir::Graph graph = elementwise_graph(1 << 18);
  Machine first;
  {
    Tuner tuner(search_device(), tuner_options(folder.path()));
    const CompileReport quick = compile_with(tuner, graph, Effort::Quick);
    EXPECT_FALSE(quick.search.machine.measured);
    first =
        compile_with(tuner, elementwise_graph(1 << 10), Effort::Search, false, 2).search.machine;
    EXPECT_TRUE(first.measured);
    EXPECT_GT(first.launch_seconds, 0);
    EXPECT_GT(first.bytes_per_second, 1e8);
    EXPECT_GT(first.flops_per_second, 1e8);
  }
  {
    const test::TempFolder empty;
    Tuner tuner(search_device(), tuner_options(empty.path()));
    const CompileReport report = compile_with(tuner, graph, Effort::Quick);
    EXPECT_EQ(report.search.measured, 0);
    const RegionSearch& r = report.search.regions.at(0);
    ASSERT_GT(r.candidates.size(), 2u);
    for (const CandidateReport& c : r.candidates) {
      EXPECT_EQ(c.state, "ranked");
      EXPECT_GT(c.predicted, 0);
    }
    EXPECT_NE(report.text().find("predicted"), std::string::npos) << report.text();
  }
  Tuner again(search_device(), tuner_options(folder.path()));
  EXPECT_FALSE(compile_with(again, graph, Effort::Quick, true).search.machine.measured);
  const Machine second = compile_with(again, graph, Effort::Search, true).search.machine;
  EXPECT_TRUE(second.measured);
  EXPECT_EQ(second.launch_seconds, first.launch_seconds);
  EXPECT_EQ(second.cycle_seconds, first.cycle_seconds);
  TuningDatabase database(folder.path());
  EXPECT_EQ(database.verify(), std::vector<std::string>());
  Tuner without(search_device(), tuner_options(std::nullopt));
  EXPECT_FALSE(compile_with(without, graph, Effort::Search).search.machine.measured);
}

// A candidate of the greedy one's generator that the model puts clearly ahead is taken untried; one
// that is little better is not, nor one of another generator.
TEST(Search, QuickTakesWhatIsClearlyAhead) {
  struct Case {
    double ahead;
    bool same_generator, taken;
  };
  for (const Case& c : {Case{0.4, true, true}, Case{0.6, true, false}, Case{0.1, false, false}}) {
    std::string other;
    TunerOptions options = tuner_options(std::nullopt);
    options.propose = [&](const kernel::Region& region, const kernel::Target& target,
                          const Machine& machine, const backend::reference::Bindings& sizes,
                          Effort) {
      Candidates all = candidates_of(region, target, machine, sizes, 3, 0);
      const std::string greedy = all.list.at(0).schedule.generator;
      for (Candidate& candidate : all.list)
        candidate.predicted = 1;
      for (std::size_t i = 1; i < all.list.size() && other.empty(); ++i)
        if ((all.list[i].schedule.generator == greedy) == c.same_generator) {
          all.list[i].predicted = c.ahead;
          other = kernel::to_string(all.list[i].schedule);
        }
      return all;
    };
    Tuner tuner(search_device(), std::move(options));
    const CompileReport report = compile_with(tuner, elementwise_graph(1 << 18), Effort::Quick);
    const RegionSearch& r = report.search.regions.at(0);
    ASSERT_NE(other, "");
    EXPECT_EQ(r.chosen, c.taken ? other : r.candidates.at(0).schedule);
    EXPECT_EQ(report.kernels.at(0).schedule, r.chosen);
  }
}

// Other schedules are looked at where the roofline leaves something to save, and where that is not
// next to nothing of the program.
TEST(Search, QuickRanksWhatIsWorthIt) {
  const auto add = [](ir::Graph& g, const char* name, std::int64_t elements, bool far_from_roof) {
    const ir::NodeId x = g.input(name, DType::F32, {Expr(elements)});
    ir::NodeId y = far_from_roof ? x : g.binary(Op::Add, x, x);
    for (int i = 0; far_from_roof && i < 16; ++i)
      y = g.add(Op::Tanh, std::vector<ir::NodeId>{y});
    g.outputs.push_back(y);
  };
  const auto ranked = [](const ir::Graph& g) {
    Tuner tuner(search_device(), tuner_options(std::nullopt));
    const CompileReport report = compile_with(tuner, g, Effort::Quick);
    std::map<std::string, bool> result;
    for (const RegionSearch& r : report.search.regions) {
      EXPECT_GT(r.predicted, 0);
      EXPECT_NE(r.chosen, "");
      result[r.name.substr(0, r.name.find('_', 4))] = !r.candidates.empty();
    }
    return result;
  };
  ir::Graph both;
  add(both, "x", 1 << 22, true);
  add(both, "y", 1 << 24, false); // its bytes take as long as they take
  EXPECT_EQ(ranked(both), (std::map<std::string, bool>{{"map_tanh", true}, {"map_add", false}}));
  ir::Graph small;
  add(small, "x", 1 << 12, true);
  add(small, "y", 1 << 24, false);
  EXPECT_EQ(ranked(small), (std::map<std::string, bool>{{"map_tanh", false}, {"map_add", false}}));
}

// What was ranked is remembered, and no search takes it for measured.
TEST(Search, ASecondQuickOneRanksNothing) {
  const test::TempFolder folder;
  const ir::Graph graph = elementwise_graph(1 << 18);
  RegionSearch first;
  {
    Tuner tuner(search_device(), tuner_options(folder.path()));
    first = compile_with(tuner, graph, Effort::Quick).search.regions.at(0);
    EXPECT_FALSE(first.cache_hit);
    EXPECT_GT(first.candidates.size(), 1u);
  }
  Tuner again(search_device(), tuner_options(folder.path()));
  const RegionSearch second = compile_with(again, graph, Effort::Quick).search.regions.at(0);
  EXPECT_TRUE(second.cache_hit);
  EXPECT_TRUE(second.candidates.empty());
  EXPECT_EQ(second.chosen, first.chosen);
  EXPECT_GT(second.predicted, 0);
  const CompileReport searched = compile_with(again, graph, Effort::Search);
  EXPECT_FALSE(searched.search.regions.at(0).cache_hit);
  EXPECT_GT(searched.search.measured, 0);
}

TEST(Search, ASecondOneMeasuresNothing) {
  const test::TempFolder folder;
  const ir::Graph graph = elementwise_graph(1 << 18);
  std::string chosen;
  {
    Tuner tuner(search_device(), tuner_options(folder.path()));
    const CompileReport report = compile_with(tuner, graph);
    EXPECT_GT(report.search.measured, 2) << report.text();
    EXPECT_GT(report.search.candidates(), 2);
    EXPECT_EQ(report.search.cache_hits, 0);
    EXPECT_FALSE(report.search.regions[0].cache_hit);
    EXPECT_GT(report.search.regions[0].greedy_seconds, 0);
    chosen = report.search.regions[0].chosen;
  }
  Tuner tuner(search_device(), tuner_options(folder.path()));
  const CompileReport report = compile_with(tuner, graph);
  EXPECT_EQ(report.search.measured, 0) << report.text();
  EXPECT_EQ(report.search.candidates(), 0);
  EXPECT_EQ(report.search.cache_hits, 1);
  EXPECT_EQ(report.kernels_compiled, 1);
  EXPECT_EQ(report.search.regions[0].chosen, chosen);
  EXPECT_EQ(report.kernels[0].schedule, chosen);
}

TEST(Search, FrozenMeasuresNothingAndGivesTheSamePlan) {
  const test::TempFolder folder;
  const ir::Graph graph = elementwise_graph(1 << 18), other = elementwise_graph(1 << 17);
  std::string chosen;
  {
    Tuner tuner(search_device(), tuner_options(folder.path()));
    chosen = compile_with(tuner, graph).search.regions[0].chosen;
  }
  for (int i = 0; i < 5; ++i) {
    Tuner tuner(search_device(), tuner_options(folder.path()));
    const CompileReport report = compile_with(tuner, graph, Effort::Search, true);
    EXPECT_EQ(report.search.measured, 0);
    EXPECT_EQ(report.kernels[0].schedule, chosen);
    const CompileReport unknown = compile_with(tuner, other, Effort::Search, true);
    EXPECT_EQ(unknown.search.measured, 0);
    EXPECT_NE(unknown.search.regions[0].note.find("frozen"), std::string::npos);
  }
}

TEST(Search, WithoutAWorkerItIsQuickAndSaysSo) {
  TunerOptions options = tuner_options(std::nullopt);
  options.worker.binary = "/nowhere/egret";
  Tuner tuner(search_device(), std::move(options));
  const CompileReport report = compile_with(tuner, elementwise_graph(1 << 18));
  EXPECT_NE(report.search.note.find("/nowhere/egret"), std::string::npos) << report.search.note;
  EXPECT_EQ(report.kernels.size(), 1u);
}

TEST(Search, EndsWhenTheBudgetOrTheCallerSaysSo) {
  Tuner tuner(search_device(), tuner_options(std::nullopt));
  const CompileReport report =
      compile_with(tuner, elementwise_graph(1 << 18), Effort::Exhaustive, false, 1e-6);
  EXPECT_EQ(report.search.measured, 0);
  EXPECT_EQ(report.search.note, "the budget is used up");
  KernelCache cache;
  Options options;
  options.effort = Effort::Search;
  options.tuner = &tuner;
  int told = 0;
  options.progress = [&](const SearchProgress& progress) {
    EXPECT_EQ(progress.kernels, 1u);
    return ++told < 3;
  };
  const CompileReport ended =
      compile_graph(elementwise_graph(1 << 18), options, search_device(), cache).report;
  EXPECT_EQ(told, 3);
  EXPECT_LE(ended.search.measured, 4);
  EXPECT_EQ(ended.kernels.size(), 1u);
}

// The same region is another one to the database where its operands come from memory each time: as
// inputs of a plan that has more of them than the caches hold.
TEST(Search, KernelsWithColdOperandsAreMeasuredForThemselves) {
  const test::TempFolder folder;
  const kernel::Target& target = search_device().target();
  const std::int64_t many = std::max(target.l2_bytes, target.l3_bytes) / 4 + 4096;
  const ir::Graph warm = elementwise_graph(1 << 18);
  ir::Graph cold = elementwise_graph(1 << 18);
  cold.outputs.push_back(
      cold.reduce(Op::ReduceSum, cold.input("z", DType::F32, {Expr(many)}), {0}));
  Tuner tuner(search_device(), tuner_options(folder.path()));
  const auto search = [&](const ir::Graph& graph) {
    const CompileReport report = compile_with(tuner, graph);
    for (const RegionSearch& r : report.search.regions)
      if (r.name.find("tanh") != std::string::npos)
        return r;
    ADD_FAILURE() << report.text();
    return RegionSearch{};
  };
  const RegionSearch first = search(warm), second = search(cold), third = search(cold);
  EXPECT_FALSE(first.cache_hit);
  EXPECT_FALSE(second.cache_hit);
  EXPECT_TRUE(third.cache_hit);
  EXPECT_NE(first.region, second.region);
  EXPECT_EQ(search(warm).region, first.region);
}

// What was cut off says nothing of the kernel, which is not rejected for it.
TEST(Search, TheBudgetEndsATrialThatIsUnderWay) {
  const test::TempFolder folder;
  TunerOptions options = tuner_options(folder.path());
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> proposed; // the budget begins there, however loaded the machine
  options.clock = [&] {
    return proposed ? std::chrono::duration<double>(Clock::now() - *proposed).count() : 0;
  };
  options.propose = [&](const kernel::Region& region, const kernel::Target& target,
                        const Machine& machine, const backend::reference::Bindings& sizes, Effort) {
    Candidates all = candidates_of(region, target, machine, sizes, 2, 3);
    CandidateMeasurement trial;
    trial.program = all.list[0].program;
    spoil_loops(trial);
    all.list[0].program = trial.program; // never ends
    proposed = Clock::now();
    return all;
  };
  Tuner tuner(search_device(), std::move(options));
  const auto begin = std::chrono::steady_clock::now();
  const CompileReport report =
      compile_with(tuner, elementwise_graph(1 << 18), Effort::Search, false, 1.5);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_GE(seconds, 1.5); // and it ended, though the candidate's program never does
  const RegionSearch& r = report.search.regions.at(0);
  EXPECT_EQ(r.note, "the budget is used up");
  EXPECT_EQ(r.candidates.at(0).state, "untried");
  TuningDatabase database(folder.path());
  EXPECT_EQ(database.stats(tuning_version()).rejected, 0);
  EXPECT_EQ(database.stats(tuning_version()).choices, 0);
}

// --- through the command

TEST(SearchCommand, ASecondProcessMeasuresNothingAndTheCacheCanBeLookedAt) {
  const test::TempFolder folder;
  const auto graph = folder / "graph.txt";
  test::write_file(graph, ir::print(elementwise_graph(1 << 17)));
  const auto cache = folder / "cache";
  const std::string compile = fmt::format("compile {} --effort search --budget {} --json",
                                          graph.string(), 20 * test::scale());
  const auto first = nlohmann::json::parse(egret_command(compile, cache).out);
  EXPECT_GT(first["search"]["measurements"], 0);
  const Ran again = egret_command(compile, cache);
  EXPECT_EQ(again.err, "");
  const auto second = nlohmann::json::parse(again.out);
  EXPECT_EQ(second["search"]["measurements"], 0);
  EXPECT_EQ(second["search"]["cache_hits"], 1);
  EXPECT_EQ(second["kernels"], first["kernels"]);
  const auto frozen = nlohmann::json::parse(egret_command(compile + " --frozen", cache).out);
  EXPECT_EQ(frozen["kernels"], first["kernels"]);

  const auto stats = nlohmann::json::parse(egret_command("cache stats --json", cache).out);
  EXPECT_EQ(stats["choices"], 1);
  EXPECT_GE(stats["objects"]["cpu"]["count"], 1);
  EXPECT_EQ(egret_command("cache verify", cache).code, 0);
  const auto file = (folder / "choices.json").string();
  EXPECT_EQ(egret_command("cache export " + file, cache).code, 0);
  EXPECT_EQ(egret_command("cache import " + file, folder / "other").out, "1 choices imported\n");
  const auto third = nlohmann::json::parse(egret_command(compile, folder / "other").out);
  EXPECT_EQ(third["search"]["measurements"], 0);
  EXPECT_EQ(egret_command("cache prune", cache).code, 2);
  const auto pruned = nlohmann::json::parse(egret_command("cache prune --all --json", cache).out);
  EXPECT_EQ(pruned["removed"], 1);
  EXPECT_EQ(pruned["left"], 0);
  EXPECT_EQ(pruned["objects_removed"], stats["objects"]["cpu"]["count"]);
  EXPECT_EQ(pruned["objects_left"], 0);
  EXPECT_EQ(egret_command("cache import " + graph.string(), cache).code, 1);
}

TEST(SearchLibraries, ReportsSayWhyThereIsNoneAndKeysHoldTheVersion) {
  ir::Graph product;
  {
    const Expr m(48), n(40), k(32);
    const ir::NodeId a = product.input("a", DType::F32, {m, k}),
                     b = product.input("b", DType::F32, {n, k});
    const Shape all{m, n, k};
    product.outputs = {
        product.reduce(Op::ReduceSum,
                       product.binary(Op::Mul, product.expand(product.reshape(a, {m, 1, k}), all),
                                      product.expand(product.reshape(b, {1, n, k}), all)),
                       {2})};
  }
  const test::TempFolder folder;
  // A choice is remembered only when its search ends before its budget: few candidates, much time.
  TunerOptions few = tuner_options(folder.path());
  few.propose = [](const kernel::Region& region, const kernel::Target& target,
                   const Machine& machine, const backend::reference::Bindings& sizes, Effort) {
    Candidates all = candidates_of(region, target, machine, sizes, 2, 0);
    all.list.resize(std::min<std::size_t>(all.list.size(), 3));
    return all;
  };
  const auto searched = [&](const ir::Graph& graph, WithLibrary& with, bool allowed,
                            Effort effort = Effort::Search) {
    Tuner tuner(with, few);
    KernelCache cache;
    Options options;
    options.effort = effort;
    options.tuner = &tuner;
    options.libraries = allowed;
    options.budget_seconds = 60 * test::scale();
    return compile_graph(graph, options, with, cache).report;
  };
  WithLibrary missing({0, "no cublasLt: nowhere"});
  const CompileReport without = searched(product, missing, true);
  ASSERT_NE(candidate(without, "cublaslt"), nullptr) << without.text();
  EXPECT_EQ(candidate(without, "cublaslt")->state, "refused");
  EXPECT_EQ(candidate(without, "cublaslt")->message, "no cublasLt: nowhere");
  EXPECT_NE(without.text().find("no cublasLt: nowhere"), std::string::npos);

  // Forbidden is as if it were not there; another version is another key.
  WithLibrary there({130000, ""});
  EXPECT_EQ(searched(product, there, false).search.cache_hits, 1);
  EXPECT_EQ(searched(product, there, true, Effort::Quick).search.cache_hits, 0);
  EXPECT_EQ(searched(product, there, true).search.cache_hits, 0);
  EXPECT_EQ(searched(product, there, true).search.cache_hits, 1);
  WithLibrary newer({130100, ""});
  EXPECT_EQ(searched(product, newer, true, Effort::Quick).search.cache_hits, 0);

  // Nothing else asks for it.
  WithLibrary unasked({130000, ""});
  EXPECT_EQ(candidate(searched(elementwise_graph(1000), unasked, true), "cublaslt"), nullptr);
  EXPECT_EQ(unasked.asked, 0);
}

TEST(SearchLibraries, AreForbiddenWithTheirReason) {
  const test::TempFolder folder;
  ir::Graph g;
  const Expr n(
      8); // too small for another layout of a factor to win, whose product is another region
  const ir::NodeId a = g.input("a", DType::F32, {n, n});
  g.outputs = {g.reduce(
      Op::ReduceSum,
      g.binary(Op::Mul, g.expand(g.reshape(a, {n, 1, n}), {n, n, n}),
               g.expand(g.reshape(g.input("b", DType::F32, {n, n}), {1, n, n}), {n, n, n})),
      {2})};
  WithLibrary there({130000, ""});
  Tuner tuner(there, tuner_options(folder.path()));
  KernelCache cache;
  Options options;
  options.effort = Effort::Search;
  options.tuner = &tuner;
  options.libraries = false;
  options.budget_seconds = 30 * test::scale();
  const CompileReport report = compile_graph(g, options, there, cache).report;
  ASSERT_NE(candidate(report, "cublaslt"), nullptr) << report.text();
  EXPECT_EQ(candidate(report, "cublaslt")->message, "libraries are not allowed");
}

TEST(SearchCommand, ASearchThatIsKilledGoesOnWhereItWas) {
  const test::TempFolder folder;
  const auto graph = folder / "graph.txt";
  test::write_file(graph, ir::print(elementwise_graph(1 << 17)));
  const auto cache = folder / "cache";
  const std::string compile = fmt::format("compile {} --effort search --budget {} --json",
                                          graph.string(), 20 * test::scale());
  const Ran killed = [&] {
    test::TempFolder out;
    const std::string line = "EGRET_OBJECTS_MB=512 EGRET_CACHE=" + cache.string() +
                             " timeout -s KILL 0.9 " + EGRET_TEST_TOOL + " " + compile +
                             " >/dev/null 2>&1";
    return Ran{std::system(line.c_str()), "", ""};
  }();
  (void)killed; // a fast machine may have been done
  TuningDatabase database(cache);
  const auto before = database.stats(tuning_version());
  const auto result = nlohmann::json::parse(egret_command(compile, cache).out);
  EXPECT_TRUE(result.contains("search"));
  if (before.choices == 0) {
    std::int64_t known = 0;
    for (const auto& candidate : result["search"]["regions"][0]["candidates"])
      known += candidate["state"] == "known";
    // The base is timed anew; finalists show their new times.
    EXPECT_LE(result["search"]["measurements"].get<std::int64_t>(),
              static_cast<std::int64_t>(result["search"]["regions"][0]["candidates"].size()) + 3 -
                  known);
  }
  EXPECT_EQ(egret_command("cache verify", cache).code, 0);
}

TEST(SearchCommand, FrozenPlansAndResultsAreTheSameInEveryProcess) {
  run_frozen(3);
}
TEST(SearchCommand, KilledSearchesLoseNothing) {
  kill_searches(3);
}
TEST(SearchCommand, ProcessesSearchAtTheSameTime) {
  search_together(3);
}
TEST(SearchCommand, ProcessesShareMachineCode) {
  load_together(3);
}

} // namespace
} // namespace egret::compiler
