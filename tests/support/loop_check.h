// Regions of random graphs through the search for loop trees: what is proposed is legal, proved,
// lowers, and computes the region.
#pragma once

#include "backend/cpu/cpu_device.h"
#include "kernel/families.h"
#include "loops/facts.h"
#include "loops/space.h"
#include "loops/terms.h"
#include "support/loop_options.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace egret::testing {

struct LoopCheck {
  loops::LoopOptions options = unhurried(); ///< of each region's search
  std::size_t trees = 8;                    ///< that are run, of those that are proposed
  std::size_t regions = 0, proposed = 0, ran = 0, refused = 0;

  /// One region: empty when nothing is wrong.
  std::string check(const RegionCase& c, backend::Device& device) {
    return check(c, device.target(), &device);
  }

  /// `device`: null, for the interpreter.
  std::string check(const RegionCase& c, const kernel::Target& target, backend::Device* device) {
    const kernel::Region& region = c.region;
    ++regions;
    if (std::string wrong = round_trip(region, target); !wrong.empty())
      return wrong + "\n" + kernel::print(region);
    const loops::LoopSpace space = loops::loop_space(region, target, options);
    proposed += space.trees.size();
    for (std::size_t i = 0; i < std::min(trees, space.trees.size()); ++i)
      if (std::string wrong = run(c, target, device, *space.trees[i].tree); !wrong.empty())
        return wrong;
    return "";
  }

  /// Trees become terms and come back.
  static std::string round_trip(const kernel::Region& region, const kernel::Target& target) {
    if (!loops::why_no_terms(region).empty())
      return "";
    loops::LoopTerms terms(region, target);
    const auto plain = kernel::loops::plain_tree(region);
    const auto back = terms.tree_of(terms.egraph().extract(terms.add(*plain)));
    return kernel::loops::equal(*plain, *back) ? "" : "a tree does not come back from its term";
  }

  std::string run(const RegionCase& c, const kernel::Target& target, backend::Device* device,
                  const kernel::loops::Tree& tree) {
    const std::string text = kernel::loops::to_text(tree, c.region);
    kernel::Schedule schedule;
    schedule.generator = "loops";
    schedule.tree = text;
    const kernel::Lowered lowered = kernel::loops_generator().lower(c.region, schedule, target);
    if (!lowered.ok) {
      ++refused;
      reasons.push_back(lowered.reason);
      return "";
    }
    kernel::verify(lowered.program);
    ++ran;
    const std::string wrong = run_and_compare(c, lowered.program, {.device = device});
    return wrong.empty() ? "" : wrong + "\n" + text + "\n" + kernel::print(c.region);
  }

  std::vector<std::string> reasons; ///< of the generator, for trees that it refused
};

/// Regions of random graphs from seed `first` on, until `count` have been looked at.
inline void check_loops(std::uint64_t first, std::size_t count, LoopCheck& check) {
  static const std::unique_ptr<backend::Device> own = backend::cpu::make_cpu_device(2);
  backend::Device& device = *own;
  for (std::uint64_t seed = first; check.regions < count; ++seed) {
    RandomGraphOptions options;
    options.max_elements = 2000;
    options.ops = 10;
    const ir::Graph graph = random_graph(seed, options);
    const auto inputs = random_inputs(graph, seed, {.special = false});
    for (const RegionCase& c : region_cases(graph, inputs)) {
      const std::string wrong = check.check(c, device);
      ASSERT_TRUE(wrong.empty()) << "seed " << seed << ": " << wrong;
    }
  }
  EXPECT_GT(check.ran, check.regions);
  std::string some;
  for (std::size_t i = 0; i < std::min<std::size_t>(check.reasons.size(), 5); ++i)
    some += check.reasons[i] + "\n";
  EXPECT_LE(check.refused, check.ran / 20) << some;
}

/// The same for a GPU, by the interpreter. What its generator does not write is not proposed.
inline void check_gpu_loops(std::uint64_t first, std::size_t count, LoopCheck& check) {
  const kernel::Target target = test_gpu();
  std::size_t with_trees = 0, before = 0;
  for (std::uint64_t seed = first; check.regions < count; ++seed) {
    RandomGraphOptions options;
    options.max_elements = 2000;
    options.ops = 10;
    const ir::Graph graph = random_graph(seed, options);
    const auto inputs = random_inputs(graph, seed, {.special = false});
    for (const RegionCase& c : region_cases(graph, inputs, target)) {
      const std::string wrong = check.check(aligned_for(c, target), target, nullptr);
      ASSERT_TRUE(wrong.empty()) << "seed " << seed << ": " << wrong;
      with_trees += check.proposed > before ? 1 : 0;
      before = check.proposed;
    }
  }
  EXPECT_GT(with_trees, check.regions * 3 / 4);
  EXPECT_EQ(check.refused, 0u);
  ::testing::Test::RecordProperty("proposed", int(check.proposed));
  ::testing::Test::RecordProperty("with_trees", int(with_trees));
}

} // namespace egret::testing
