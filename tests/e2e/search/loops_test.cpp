// Loop trees in searches: proposed beside the families' schedules, timed, reported, remembered, and
// dropped where they no longer fit.
#include "compiler/compile.h"
#include "compiler/search/tuner.h"
#include "support/cpu_levels.h"
#include "support/scale.h"
#include "support/search_processes.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace egret::compiler {
namespace {

using namespace egret::testing;

/// Sums of products over the first and the last axis of a cube: no family takes it.
const char* const kGraph = "%x: f32[48,40,64] = input \"x\"\n"
                           "%w: f32[48,40,64] = input \"w\"\n"
                           "%t: f32[48,40,64] = tanh(%w)\n"
                           "%m: f32[48,40,64] = mul(%x, %t)\n"
                           "%s: f32[40] = sum(%m) axes=[0,2]\n"
                           "outputs %s\n";

backend::Device& loops_device() {
  static const auto made = backend::cpu::make_cpu_device(2);
  return *made;
}

CompileReport compile(const std::filesystem::path& folder, bool frozen,
                      double budget = 30 * test::scale()) {
  Tuner tuner(loops_device(),
              {.worker = {"cpu", EGRET_TEST_TOOL, 60 * test::scale()}, .folder = folder});
  KernelCache cache;
  Options options;
  options.effort = Effort::Search;
  options.tuner = &tuner;
  options.frozen = frozen;
  options.budget_seconds = budget;
  return compile_graph(ir::parse_graph(kGraph), options, loops_device(), cache).report;
}

TEST(LoopTreesInSearch, AreTimedBesideTheOthersAndReported) {
  test::TempFolder folder;
  const CompileReport report = compile(folder.path(), false);
  ASSERT_EQ(report.search.regions.size(), 1u);
  const RegionSearch& region = report.search.regions[0];
  ASSERT_TRUE(region.loops.has_value());
  EXPECT_EQ(region.loops->note, "");
  EXPECT_GT(region.loops->points, 10u);
  EXPECT_FALSE(region.loops->rules.empty());
  std::size_t timed = 0;
  for (const CandidateReport& c : region.candidates)
    if (c.schedule.starts_with("loops @tree=")) {
      EXPECT_FALSE(c.rejected()) << c.schedule << ": " << c.message;
      timed += c.seconds > 0 ? 1 : 0;
    }
  EXPECT_GT(timed, 1u) << report.search.text();
  EXPECT_NE(report.search.text().find("loops @tree=for("), std::string::npos);
  EXPECT_NE(report.search.text().find("rules "), std::string::npos);
}

TEST(LoopTreesInSearch, ARememberedTreeThatDoesNotFitIsDroppedWithAReason) {
  test::TempFolder folder;
  const CompileReport first = compile(folder.path(), false, 0.01);
  const RegionSearch& region = first.search.regions.at(0);
  {
    TuningDatabase database(folder.path(), TuningDatabase::Mode::Normal);
    TuningChoice choice;
    choice.schedule = "loops @tree=for(0,5,1,serial,body(0))";
    choice.name = region.name;
    choice.device = loops_device().name();
    choice.effort = "search";
    choice.seconds = choice.greedy_seconds = 1e-6;
    database.put({region.region, loops_device().target().fingerprint,
                  loops_device().target().workers, tuning_version()},
                 choice);
  }
  const CompileReport again = compile(folder.path(), true);
  const RegionSearch& dropped = again.search.regions.at(0);
  EXPECT_FALSE(dropped.cache_hit);
  EXPECT_NE(dropped.dropped.find("loops @tree=for(0,5,1,serial,body(0)): "), std::string::npos)
      << dropped.dropped;
  EXPECT_FALSE(dropped.chosen.starts_with("loops")) << dropped.chosen;
  EXPECT_NE(again.search.text().find("dropped   loops @tree="), std::string::npos);
}

TEST(LoopTreesInSearch, TheCommandReportsThemAndWritesAProgramThatRuns) {
  test::TempFolder folder;
  const std::string graph = (folder / "graph.txt").string();
  test::write_file(folder / "graph.txt", kGraph);
  const std::string loops = (folder / "loops.egg").string();
  const Ran ran =
      egret_command(fmt::format("compile {} --effort search --budget {} --json --loops-program {}",
                                graph, 8 * test::scale(), loops),
                    folder / "cache");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const auto json = nlohmann::json::parse(ran.out);
  const auto& region = json["search"]["regions"].at(0);
  EXPECT_GT(region["loops"]["estimated"].get<int>(), 10);
  EXPECT_FALSE(region["loops"]["rules"].empty());
  const Ran replayed = egret_command("egraph run " + loops, folder / "cache");
  EXPECT_EQ(replayed.code, 0) << replayed.err;
  EXPECT_NE(replayed.out.find("(For "), std::string::npos);
}

} // namespace
} // namespace egret::compiler
