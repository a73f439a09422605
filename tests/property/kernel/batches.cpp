// Independent regions of different forms as one: every schedule of every generator agrees with the
// reference, and the batch generator takes all that it says it can.
#include "kernel/families.h"
#include "kernel/parts.h"
#include "support/c_compiler.h"
#include "support/cpu_levels.h"
#include "support/hash.h"
#include "support/region_forms.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

namespace egret {
namespace {

using testing::RegionCase;

/// The regions of both, beside each other.
RegionCase beside(RegionCase a, const RegionCase& b) {
  std::vector<int> operands;
  for (std::size_t i = 0; i < b.operands.size(); ++i) {
    operands.push_back(static_cast<int>(a.operands.size()));
    a.region.operands.push_back(b.region.operands[i]);
    a.operands.push_back(b.operands[i]);
  }
  kernel::add_part(a.region, b.region, operands);
  a.outputs.insert(a.outputs.end(), b.outputs.begin(), b.outputs.end());
  for (const auto& [symbol, value] : b.dims.values())
    a.dims.set(symbol, value);
  return a;
}

/// One region of each form at its size number `size`, of forms without symbolic sizes that leave
/// every stage an axis.
std::vector<RegionCase> simple_cases(std::size_t size) {
  std::vector<RegionCase> cases;
  for (const testing::FormCase& form : testing::region_forms()) {
    const auto [m, n] = form.sizes[size % form.sizes.size()];
    if (m * n > 3000)
      continue;
    ir::Graph g;
    form.make(g, m, n);
    auto own = testing::region_cases(g, testing::inputs_of(g, size + cases.size(), false));
    const auto& stages = own.back().region.stages;
    if (own.back().dims.values().empty() &&
        std::none_of(stages.begin(), stages.end(), [](const auto& s) { return s.axes.empty(); }))
      cases.push_back(std::move(own.back()));
  }
  return cases;
}

/// How many of the batches the generator took.
std::size_t check_batches(const kernel::Target& target, std::size_t size, std::size_t most,
                          backend::Device* device = nullptr) {
  const std::vector<RegionCase> cases = simple_cases(size);
  std::vector<bool> possible;
  for (const RegionCase& c : cases)
    possible.push_back(kernel::lower_part(c.region, target).ok);
  std::size_t taken = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::size_t j = (i + 1 + size) % cases.size(), k = (i + 5 + 2 * size) % cases.size();
    RegionCase c = beside(beside(cases[i], cases[j]), cases[k]);
    testing::take_over_operands(c.region);
    EXPECT_EQ(kernel::parts_of(c.region).size(), 3u);
    const std::string wrong = testing::check_generators(
        c, target, {.device = device, .workers = static_cast<int>(1 + size % 3), .in_place = true},
        most);
    EXPECT_TRUE(wrong.empty()) << wrong;
    const bool batch = kernel::lower_greedily(c.region, target).schedule.generator == "batch";
    EXPECT_EQ(batch, possible[i] && possible[j] && possible[k]);
    taken += batch;
    if (::testing::Test::HasFailure())
      break;
  }
  return taken;
}

TEST(Batches, SchedulesAgreeWithTheReference) {
  const auto targets = testing::test_targets();
  std::size_t taken = 0;
  for (std::size_t size = 0; size < 6; ++size)
    taken += check_batches(targets[size % targets.size()], size, 3);
  EXPECT_GT(taken, 30u);
}

TEST(Batches, SchedulesOfAGpuAgreeWithTheReference) {
  std::size_t taken = 0;
  for (std::size_t size = 0; size < 4; ++size)
    taken += check_batches(testing::test_gpu(), size, 1);
  EXPECT_GT(taken, 20u);
}

TEST(Batches, UsualSchedulesRunOnTheCpu) {
  for (const char* level : testing::cpu_levels()) {
    backend::Device& device = testing::cpu_at(level);
    EXPECT_GT(check_batches(device.target(), 2, 1, &device), 8u);
  }
}

/// Regions of one form at sizes that are drawn, each twice, and one of another form between them.
RegionCase equal_forms(const testing::FormCase& form, std::uint64_t seed, bool with_other) {
  std::optional<RegionCase> all;
  const auto join = [&](const RegionCase& next) {
    all = all ? beside(std::move(*all), next) : next;
  };
  const std::vector<RegionCase> others = simple_cases(seed);
  for (std::uint64_t i = 0; i < 5; ++i) {
    const std::uint64_t draw = combine(seed, i);
    ir::Graph g;
    form.make(g, 2 + static_cast<std::int64_t>(draw % 23),
              2 + static_cast<std::int64_t>(draw / 23 % 61));
    join(testing::region_cases(g, testing::inputs_of(g, draw, false)).back());
    if (with_other && i == 2)
      join(others[draw % others.size()]);
  }
  testing::take_over_operands(all->region);
  return std::move(*all);
}

bool has_form_of_parts(const testing::FormCase& form) {
  ir::Graph g;
  form.make(g, 5, 7);
  const auto cases = testing::region_cases(g, testing::inputs_of(g, 1, false));
  const auto& stages = cases.back().region.stages;
  return cases.back().dims.values().empty() &&
         std::none_of(stages.begin(), stages.end(), [](const auto& s) { return s.axes.empty(); });
}

/// How many programs had a group. `every`: of so many forms one is tried.
std::size_t check_groups(const kernel::Target& target, std::uint64_t seed, std::size_t most,
                         backend::Device* device = nullptr, std::size_t every = 1) {
  std::size_t grouped = 0, number = 0;
  for (const testing::FormCase& form : testing::region_forms()) {
    if (number++ % every != 0 || !has_form_of_parts(form))
      continue;
    const RegionCase c = equal_forms(form, combine(seed, grouped), seed % 2 == 0);
    const std::string wrong = testing::check_generators(
        c, target, {.device = device, .workers = static_cast<int>(1 + seed % 3), .in_place = true},
        most);
    EXPECT_TRUE(wrong.empty()) << form.name << ": " << wrong;
    if (::testing::Test::HasFailure())
      break;
    // Behind the codes of their own, which few parts have first.
    const auto space = kernel::batch_generator().space(c.region, target);
    grouped += space.size() > 1 &&
               !kernel::batch_generator().lower(c.region, space[1], target).program.groups.empty();
  }
  return grouped;
}

TEST(Groups, AgreeWithTheReference) {
  const auto targets = testing::test_targets();
  std::size_t grouped = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    grouped += check_groups(targets[seed % targets.size()], seed, 2);
  EXPECT_GT(grouped, 20u);
}

TEST(Groups, OfAGpuAgreeWithTheReference) {
  std::size_t grouped = 0;
  for (std::uint64_t seed = 0; seed < 3; ++seed)
    grouped += check_groups(testing::test_gpu(), seed, 2);
  EXPECT_GT(grouped, 15u);
}

TEST(Groups, RunOnTheCpu) {
  for (const char* level : testing::cpu_levels()) {
    backend::Device& device = testing::cpu_at(level);
    EXPECT_GT(check_groups(device.target(), 5, 2, &device, 3), 2u);
  }
}

TEST(Groups, RunAsC) {
  EGRET_NEEDS_C_COMPILER();
  EXPECT_GT(check_groups(testing::c_device()->target(), 6, 2, testing::c_device(), 8), 1u);
}

TEST(Batches, ARegionThatIsOneWholeIsNotTaken) {
  for (const RegionCase& c : simple_cases(0)) {
    EXPECT_FALSE(kernel::has_parts(c.region));
    EXPECT_TRUE(kernel::batch_generator().space(c.region, testing::test_targets()[0]).empty());
    kernel::Schedule s;
    s.generator = "batch";
    EXPECT_FALSE(kernel::batch_generator().lower(c.region, s, testing::test_targets()[0]).ok);
  }
}

} // namespace
} // namespace egret
