// Independent regions of different forms as one: every schedule of every generator agrees with the
// reference, and the batch generator takes all that it says it can.
#include "kernel/families.h"
#include "kernel/parts.h"
#include "support/cpu_levels.h"
#include "support/region_forms.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <algorithm>

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
