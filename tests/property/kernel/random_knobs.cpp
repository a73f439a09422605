// Schedules come from files and people: whatever their numbers, a generator refuses them with a
// reason or makes a program that verifies and computes the region.
#include "backend/cuda/target.h"
#include "support/region_forms.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>
#include <limits>
#include <random>

namespace egret {
namespace {

using kernel::Schedule;

std::int64_t any_number(std::mt19937& random) {
  constexpr std::int64_t kNumbers[] = {std::numeric_limits<std::int64_t>::min(),
                                       -1024,
                                       -1,
                                       0,
                                       1,
                                       2,
                                       3,
                                       4,
                                       5,
                                       7,
                                       8,
                                       16,
                                       24,
                                       31,
                                       32,
                                       33,
                                       64,
                                       96,
                                       100,
                                       128,
                                       255,
                                       256,
                                       512,
                                       1000,
                                       1024,
                                       1025,
                                       4096,
                                       65536,
                                       1 << 20,
                                       std::int64_t{1} << 31,
                                       (std::int64_t{1} << 32) + 1,
                                       std::int64_t{1} << 40,
                                       std::numeric_limits<std::int64_t>::max()};
  return kNumbers[random() % std::size(kNumbers)];
}

Schedule changed(Schedule s, std::mt19937& random) {
  for (int n = static_cast<int>(1 + random() % 3); n > 0; --n) {
    const std::int64_t value = any_number(random);
    const auto small = static_cast<int>(std::clamp<std::int64_t>(value, -1 << 30, 1 << 30));
    switch (random() % 12) {
    case 0:
      s.vector_bytes = value;
      break;
    case 1:
      s.split_reduce = value;
      break;
    case 2:
      s.order = static_cast<kernel::WorkOrder>(random() % 2);
      s.order_group = value;
      break;
    case 3:
      s.blocks_per_core = small;
      break;
    case 4:
      s.least_shared = value;
      break;
    case 5:
      s.store_policy = static_cast<kernel::CachePolicy>(random() % 4);
      break;
    default:
      if (s.knobs.empty())
        break;
      auto knob = s.knobs.begin();
      std::advance(knob, random() % s.knobs.size());
      knob->second = value;
    }
  }
  return s;
}

class RandomKnobs : public ::testing::TestWithParam<testing::FormCase> {};

TEST_P(RandomKnobs, AreRefusedWithAReasonOrMakeARightProgram) {
  std::mt19937 random(5);
  std::vector<kernel::Target> targets{testing::test_targets().front(), testing::test_gpu()};
  const auto [m, n] = GetParam().sizes.front();
  ir::Graph g;
  GetParam().make(g, m, n);
  int made = 0, refused = 0;
  for (const auto& c : testing::region_cases(g, testing::inputs_of(g, 1, false)))
    for (const kernel::Target& target : targets) {
      const auto aligned = testing::aligned_for(c, target);
      for (const kernel::Generator* generator : kernel::generators(target)) {
        const auto space = generator->space(aligned.region, target);
        // Knobs that any schedule of the generator has.
        Schedule all;
        for (const Schedule& s : space)
          all.knobs.insert(s.knobs.begin(), s.knobs.end());
        for (int i = 0; i < 60 && !space.empty(); ++i) {
          Schedule schedule = space[random() % space.size()];
          if (i % 2 == 0)
            schedule.knobs.insert(all.knobs.begin(), all.knobs.end());
          schedule = changed(std::move(schedule), random);
          const kernel::Lowered lowered = generator->lower(aligned.region, schedule, target);
          if (!lowered.ok) {
            EXPECT_NE(lowered.reason, "") << kernel::to_string(schedule);
            ++refused;
            continue;
          }
          ++made;
          ASSERT_NO_THROW(kernel::verify(lowered.program)) << kernel::to_string(schedule);
          if (i % 6 == 0) {
            const std::string wrong =
                testing::check_schedule(c, *generator, schedule, target, {.workers = 2});
            ASSERT_TRUE(wrong.empty()) << wrong;
          }
        }
      }
    }
  EXPECT_GT(made, 0);
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(All, RandomKnobs, ::testing::ValuesIn(testing::region_forms()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Knobs, UnknownOnesAndForeignSettingsAreRefusedByName) {
  ir::Graph g;
  testing::region_forms().front().make(g, 8, 33);
  const auto cases = testing::region_cases(g, testing::inputs_of(g, 1, false));
  auto says = [&](const kernel::Target& target, const std::string& text, const std::string& part) {
    const Schedule schedule = kernel::parse_schedule(text);
    const auto lowered = testing::generator_named(schedule.generator, target)
                             .lower(cases.at(0).region, schedule, target);
    EXPECT_FALSE(lowered.ok) << text;
    EXPECT_NE(lowered.reason.find(part), std::string::npos) << lowered.reason;
  };
  const kernel::Target cpu = testing::test_targets().front(), gpu = testing::test_gpu();
  says(cpu, "generic speed=3", "generic has no parameter speed");
  says(cpu, "generic vector=2", "vector=2 is not one of 0, 1 ... 1");
  says(cpu, "generic @vector_bytes=24", "@vector_bytes of 24 is no power of two");
  says(cpu, "generic @split_reduce=0", "@split_reduce of 0 is not between 1 and 65536");
  says(cpu, "generic @mma=m16n8k16", "generic takes no @mma");
}

} // namespace
} // namespace egret
