// Random programs of reductions through the compiler, compared with the reference.
#pragma once

#include "backend/cpu/cpu_device.h"
#include "support/minimize.h"
#include "support/plan_check.h"
#include "support/reduction_graphs.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace egret::testing {

class ReductionCheck {
public:
  ReductionCheck()
      : device_(backend::cpu::make_cpu_device(2)), small_(with_small_caches(*device_)) {}

  /// Seeds from `first` on: every other one on a machine with small caches, so that products are
  /// streamed; every third one with the rules.
  void run(std::uint64_t first, std::uint64_t count) {
    int wrong = 0;
    for (std::uint64_t seed = first; seed < first + count && wrong < 3; ++seed) {
      const ReductionGraph made = random_reductions(seed);
      for (std::size_t i = 0; i < made.steps.size(); ++i)
        steps_[i] += made.steps[i];
      gradients_ += made.gradients;
      const PlanCheck found = check(made.graph, seed);
      checked_ += found.checked;
      vacuous_ += found.vacuous;
      if (found.problem.empty())
        continue;
      ++wrong;
      const ir::Graph small = minimized(
          made.graph, [&](const ir::Graph& part) { return !check(part, seed).problem.empty(); });
      ADD_FAILURE() << "seed " << seed << ": " << check(small, seed).problem << "\n"
                    << ir::print(small);
    }
    for (int n : steps_)
      EXPECT_GE(n, int(count / 10));
    EXPECT_GE(gradients_, int(count / 6));
    for (const char* generator : {"rows", "columns", "contraction", "stream"})
      EXPECT_TRUE(generators_.contains(generator)) << generator;
    EXPECT_LT(vacuous_, checked_ / 10);
  }

private:
  PlanCheck check(const ir::Graph& graph, std::uint64_t seed) {
    PlanCheckOptions options;
    options.inputs = {.special = false, .range = 1};
    options.compile.effort = seed % 3 == 0 ? Effort::Quick : Effort::None;
    options.compile.inject_fault = [&](kernel::Region&, kernel::Chosen& chosen) {
      generators_.insert(chosen.schedule.generator);
    };
    compiler::KernelCache cache;
    return check_plan(graph, seed, options, seed % 2 == 0 ? *device_ : *small_, cache);
  }

  std::unique_ptr<backend::Device> device_, small_;
  std::array<int, kReductionSteps> steps_{};
  int gradients_ = 0;
  std::int64_t checked_ = 0, vacuous_ = 0;
  std::set<std::string> generators_;
};

} // namespace egret::testing
