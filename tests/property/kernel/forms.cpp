// One graph of each form that regions come in, at sizes just below, at and above what vectors,
// chunks and pieces divide: all generators and schedules through the interpreter, the usual
// schedule of each on the CPU.
#include "support/cpu_levels.h"
#include "support/region_forms.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using ir::Graph;
using testing::FormCase;
using testing::inputs_of;

class Forms : public ::testing::TestWithParam<FormCase> {};

TEST_P(Forms, EveryScheduleAgreesWithTheReference) {
  auto targets = testing::test_targets();
  std::uint64_t seed = 0;
  for (auto [m, n] : GetParam().sizes) {
    Graph g;
    GetParam().make(g, m, n);
    bool large = m * n > 4000;
    for (const auto& c : testing::region_cases(g, inputs_of(g, ++seed, false)))
      for (const auto& target : targets) {
        std::string wrong =
            testing::check_generators(c, target, {.workers = int(1 + seed % 3)}, large ? 1 : 1000);
        ASSERT_TRUE(wrong.empty()) << m << "," << n << ": " << wrong;
        if (large)
          break;
      }
  }
}

TEST_P(Forms, SpecialNumbersAgreeWithTheReference) {
  auto targets = testing::test_targets();
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Graph g;
    GetParam().make(g, 3, 37);
    for (const auto& c : testing::region_cases(g, inputs_of(g, seed, true))) {
      std::string wrong = testing::check_generators(c, targets[seed % 3], {}, 2);
      ASSERT_TRUE(wrong.empty()) << "seed " << seed << ": " << wrong;
    }
  }
}

TEST_P(Forms, UsualSchedulesRunOnTheCpu) {
  for (const char* level : testing::cpu_levels()) {
    backend::Device& device = testing::cpu_at(level);
    auto [m, n] = GetParam().sizes.back();
    Graph g;
    GetParam().make(g, m, n);
    for (const auto& c : testing::region_cases(g, inputs_of(g, 77, false))) {
      std::string wrong = testing::check_generators(c, device.target(), {.device = &device}, 1);
      ASSERT_TRUE(wrong.empty()) << level << ": " << wrong;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Forms, ::testing::ValuesIn(testing::region_forms()),
                         [](const auto& info) { return std::string(info.param.name); });

} // namespace
} // namespace egret
