// Random legal loop trees of all forms of regions and of random graphs: every program that is
// written verifies and gives the region's values; what is not legal or not written gives a reason.
#include "kernel/families.h"
#include "support/random_trees.h"
#include "support/region_forms.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace egret::testing {
namespace {

using kernel::loops::TreePtr;

/// EGRET_LOOP_TREES: how many random graphs.
int graphs() {
  const char* wanted = std::getenv("EGRET_LOOP_TREES");
  return wanted ? std::atoi(wanted) : 60;
}

struct Tally {
  int tried = 0, lowered = 0;
  std::map<std::string, int> reasons;
};

kernel::Schedule schedule_of(const TreePtr& tree, const kernel::Region& region) {
  kernel::Schedule s;
  s.generator = "loops";
  s.tree = to_text(*tree, region);
  return s;
}

/// Random trees of the region, run by the interpreter.
void check_trees(const RegionCase& c, const kernel::Target& target, std::uint64_t seed, int trees,
                 int steps, Tally& tally, const RunOptions& options) {
  Rng rng(seed);
  TreeBinds binds;
  if (target.is_gpu())
    binds.binds = {kernel::Bind::Serial, kernel::Bind::Unroll, kernel::Bind::Vector,
                   kernel::Bind::Grid,   kernel::Bind::Lane,   kernel::Bind::Lane,
                   kernel::Bind::Warp};
  for (int i = 0; i < trees; ++i) {
    const TreePtr tree = random_tree(c.region, rng, steps, binds);
    const kernel::Schedule schedule = schedule_of(tree, c.region);
    ++tally.tried;
    kernel::Lowered lowered;
    try {
      lowered = kernel::loops_generator().lower(c.region, schedule, target);
    } catch (const std::exception& e) {
      FAIL() << e.what() << "\n" << schedule.tree << "\n" << print(c.region);
    }
    if (!lowered.ok) {
      ++tally.reasons[lowered.reason];
      continue;
    }
    ++tally.lowered;
    const std::string wrong = run_and_compare(c, lowered.program, options);
    ASSERT_EQ(wrong, "") << schedule.tree << "\nvectors of " << target.vector_bytes << " bytes\n"
                         << print(c.region) << "\n"
                         << print(lowered.program);
  }
}

void expect_most_lowered(const Tally& tally) {
  std::string text;
  for (const auto& [reason, n] : tally.reasons)
    text += std::to_string(n) + " " + reason + "\n";
  EXPECT_GT(tally.lowered, tally.tried / 2) << text;
  ::testing::Test::RecordProperty("tried", tally.tried);
  ::testing::Test::RecordProperty("lowered", tally.lowered);
}

class LoopTreesOfForms : public ::testing::TestWithParam<FormCase> {};

TEST_P(LoopTreesOfForms, RandomTreesAgree) {
  Tally tally;
  std::uint64_t seed = 1;
  for (const auto& [m, n] : GetParam().sizes) {
    if (m * n > 4000)
      continue;
    ir::Graph g;
    GetParam().make(g, m, n);
    const auto inputs = inputs_of(g, seed, false);
    for (RegionCase& c : region_cases(g, inputs)) {
      if (seed % 2)
        take_over_operands(c.region);
      check_trees(c, test_targets()[seed % 3], seed, 6, 4 + int(seed % 5) * 6, tally,
                  {.workers = 1 + int(seed % 3), .in_place = seed % 2 == 1});
      ++seed;
      if (HasFatalFailure())
        return;
    }
  }
  if (tally.tried > 0)
    expect_most_lowered(tally);
}

TEST_P(LoopTreesOfForms, RandomTreesAgreeOnAGpu) {
  Tally tally;
  std::uint64_t seed = 1;
  const auto& [m, n] = GetParam().sizes[GetParam().sizes.size() / 2];
  if (m * n > 2000)
    return;
  ir::Graph g;
  GetParam().make(g, m, n);
  const auto inputs = inputs_of(g, seed, false);
  for (int i = 0; i < 4; ++i)
    for (RegionCase& c : region_cases(g, inputs)) {
      if (seed % 2)
        take_over_operands(c.region);
      check_trees(c, test_gpu(), seed, 6, 6 + int(seed % 4) * 6, tally,
                  {.workers = 1 + int(seed % 3), .in_place = seed % 2 == 1});
      ++seed;
      if (HasFatalFailure())
        return;
    }
  EXPECT_GT(tally.lowered, tally.tried / 4);
}

INSTANTIATE_TEST_SUITE_P(Forms, LoopTreesOfForms, ::testing::ValuesIn(region_forms()),
                         [](const auto& info) { return std::string(info.param.name); });

void check_random_graphs(bool gpu, int graphs) {
  Tally tally;
  for (std::uint64_t seed = 1; seed <= std::uint64_t(graphs); ++seed) {
    RandomGraphOptions options;
    options.max_elements = 300;
    options.symbolic = seed % 3 == 0;
    options.floats = seed % 2 == 0;
    const ir::Graph g = random_graph(seed, options);
    const auto inputs = random_inputs(g, seed, {.special = false});
    for (const RegionCase& c : region_cases(g, inputs)) {
      check_trees(c, gpu ? test_gpu() : test_targets()[seed % 3], seed, 3, 20, tally,
                  {.workers = 1 + int(seed % 3)});
      if (::testing::Test::HasFatalFailure())
        return;
    }
  }
  if (!gpu)
    expect_most_lowered(tally);
  EXPECT_GT(tally.lowered, tally.tried / 5);
}

TEST(LoopTrees, OfRandomGraphsAgree) {
  check_random_graphs(false, graphs());
}

TEST(LoopTrees, OfRandomGraphsAgreeOnAGpu) {
  check_random_graphs(true, graphs());
}

/// Text with bytes changed, cut or doubled is refused or is another tree that is right.
TEST(LoopTrees, MutatedTextsAreRefusedOrRight) {
  ir::Graph g;
  const auto x = g.input("x", DType::F32, {5, 12}), y = g.input("y", DType::F32, {5, 12});
  const auto product = g.binary(Op::Mul, x, y);
  g.outputs = {g.reduce(Op::ReduceSum, product, {1}), g.unary(Op::Exp, product)};
  const auto inputs = random_inputs(g, 3, {.special = false});
  int refused = 0, right = 0;
  for (const RegionCase& c : region_cases(g, inputs)) {
    Rng rng(7);
    for (int i = 0; i < 2000; ++i) {
      std::string text = to_text(*random_tree(c.region, rng, 12), c.region);
      for (int k = 0; k < 1 + int(rng.below(2)); ++k) {
        auto at = std::size_t(rng.below(std::int64_t(text.size())));
        switch (rng.below(6)) {
        case 0:
        case 1:
        case 2:
          at = std::min(text.find_first_of("0123456789", at), text.size() - 2);
          text[at] = char('0' + rng.below(10));
          break;
        case 3:
          text.erase(at, std::size_t(1 + rng.below(4)));
          break;
        case 4:
          text.insert(at, text.substr(at, std::size_t(1 + rng.below(8))));
          break;
        default:
          text[at] = char(32 + rng.below(95));
          break;
        }
        if (text.empty())
          break;
      }
      kernel::Schedule schedule;
      schedule.generator = "loops";
      schedule.tree = text;
      const auto lowered = kernel::loops_generator().lower(c.region, schedule, test_targets()[0]);
      if (!lowered.ok) {
        EXPECT_FALSE(lowered.reason.empty());
        ++refused;
        continue;
      }
      ++right;
      ASSERT_EQ(run_and_compare(c, lowered.program), "") << text;
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(right, 20);
}

} // namespace
} // namespace egret::testing
