// Random graphs through effort `search`, with schedules drawn at random from all that generators
// propose, compared with the reference.
#pragma once

#include "backend/cpu/cpu_device.h"
#include "compiler/search/tuner.h"
#include "support/minimize.h"
#include "support/plan_check.h"
#include "support/random_graph.h"
#include "support/scale.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace egret::testing {

class SearchedGraphs {
public:
  /// `shuffle`: rules are loaded in an order of its own for each graph.
  explicit SearchedGraphs(bool shuffle)
      : shuffle_(shuffle), device_(backend::cpu::make_cpu_device(2)),
        tuner_(*device_, {.worker = {"cpu", EGRET_TEST_TOOL, 60 * test::scale()}}) {}

  /// Graphs of seeds `first` to `first + count` agree with the evaluator, each with a search of a
  /// few milliseconds.
  void run(std::uint64_t first, std::uint64_t count) {
    int wrong = 0;
    for (std::uint64_t seed = first; seed < first + count && wrong < 3; ++seed) {
      const ir::Graph graph = seed % 50 == 7
                                  ? long_sum(400000 + static_cast<std::int64_t>(seed % 9))
                                  : random_graph(seed, {.ops = 10, .symbolic = seed % 4 == 0});
      for (ir::NodeId id = 0; id < graph.size(); ++id)
        ops_.insert(graph[id].op);
      if (problem(graph, seed).empty())
        continue;
      ++wrong;
      const ir::Graph part =
          minimized(graph, [&](const ir::Graph& g) { return !problem(g, seed).empty(); });
      ADD_FAILURE() << "seed " << seed << ": " << problem(part, seed) << "\n" << ir::print(part);
    }
  }

  /// Every op was computed and every generator has made a kernel that ran.
  void expect_all_covered() const {
    for (int op = 0; op < kOps; ++op)
      EXPECT_TRUE(ops_.contains(static_cast<Op>(op))) << info_of(static_cast<Op>(op)).name;
    for (const kernel::Generator* generator : reachable_generators(device_->target()))
      EXPECT_TRUE(generators_.contains(generator->name())) << generator->name();
    EXPECT_GT(measured_, 0);
  }

private:
  std::string problem(const ir::Graph& graph, std::uint64_t seed) {
    Rng random(seed);
    std::string schedules;
    PlanCheckOptions check;
    compiler::Options& options = check.compile;
    options.effort = Effort::Search;
    options.tuner = &tuner_;
    options.budget_seconds = 0.01;
    options.rules.shuffle = shuffle_ ? seed + 1 : 0;
    options.rules.rounds = 6;
    options.inject_fault = [&](kernel::Region& region, kernel::Chosen& chosen) {
      if (random.chance(0.7)) {
        auto all = compiler::candidates_of(region, device_->target(),
                                           compiler::usual_machine(device_->target()),
                                           compiler::sizes_to_try(region), 4, 0);
        auto& drawn = all.list[static_cast<std::size_t>(
            random.below(static_cast<std::int64_t>(all.list.size())))];
        chosen = {std::move(drawn.schedule), std::move(drawn.program)};
      }
      generators_.insert(chosen.schedule.generator);
      schedules += kernel::to_string(chosen.schedule) + "\n";
    };
    compiler::KernelCache cache;
    const PlanCheck found = check_plan(graph, seed, check, *device_, cache);
    measured_ += found.report.search.measured;
    return found.problem.empty() ? "" : found.problem + "\n" + schedules;
  }

  bool shuffle_;
  std::unique_ptr<backend::Device> device_;
  compiler::Tuner tuner_;
  std::set<Op> ops_;
  std::set<std::string> generators_;
  std::int64_t measured_ = 0;
};

} // namespace egret::testing
