// The region evaluator against the graph reference, and verify_kernel against generated programs,
// on regions of random graphs.
#include "backend/reference/kernel_check.h"
#include "backend/reference/program_interpreter.h"
#include "backend/reference/region_evaluator.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace egret {
namespace {

using namespace backend::reference;
using testing::RegionCase;

/// Empty, or the first element in which the evaluator and the graph reference differ by more than
/// their bounds.
std::string difference(const RegionCase& c) {
  std::vector<const HostArray*> operands;
  for (const HostArray& operand : c.operands)
    operands.push_back(&operand);
  RegionEvaluator evaluator(c.region, c.dims, operands);
  for (std::size_t o = 0; o < c.region.outputs.size(); ++o) {
    const kernel::Output& output = c.region.outputs[o];
    const Expected& want = c.outputs[o];
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < want.value.size(); ++i)
      all.push_back(i);
    const bool scatter = output.combine != kernel::Combine::Store;
    if (scatter && output.alias < 0)
      continue; // its data is not among the operands
    const auto got =
        evaluator.at_offsets(int(o), all, scatter ? operands[std::size_t(output.alias)] : nullptr);
    for (std::int64_t i : all) {
      if (!got.contains(i))
        return fmt::format("output {}: nothing goes to element {}", o, i);
      const Estimate value = got.at(i);
      if (!std::isinf(value.error) && !accepts(output.dtype, want.at(i), value.value))
        return fmt::format("output {}, element {}: {} instead of {} ± {}", o, i,
                           text_of(output.dtype, value.value),
                           text_of(output.dtype, want.at(i).value), want.at(i).error);
    }
  }
  return {};
}

const LaunchKernel by_interpreter = [](const kernel::KernelProgram& program,
                                       const kernel::ArgBlock& block) {
  interpret(program, block, {.workers = 2});
};

TEST(RandomRegions, AreEvaluatedAsTheirGraphsAre) {
  int outputs = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const ir::Graph graph = testing::random_graph(seed, {.max_elements = 300});
    const auto inputs = testing::random_inputs(graph, seed, {.special = seed % 2 == 0});
    for (const RegionCase& c : testing::region_cases(graph, inputs, seed % 3 != 0)) {
      const std::string wrong = difference(c);
      ASSERT_TRUE(wrong.empty()) << "seed " << seed << ": " << wrong << "\n" << print(c.region);
      outputs += int(c.outputs.size());
    }
  }
  EXPECT_GT(outputs, 1000);
}

TEST(RandomRegions, PassVerifyKernelCompletelyAndBySamples) {
  const auto targets = testing::test_targets();
  std::int64_t checked = 0, vacuous = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const ir::Graph graph =
        testing::random_graph(seed, {.symbolic = seed % 5 == 0, .max_elements = 300});
    const auto inputs = testing::random_inputs(graph, seed);
    for (const RegionCase& c : testing::region_cases(graph, inputs)) {
      const auto chosen = kernel::lower_greedily(c.region, targets[seed % targets.size()]);
      for (std::int64_t work : {std::int64_t{1} << 20, std::int64_t{0}}) {
        const KernelCheck check =
            verify_kernel(c.region, chosen.program, by_interpreter, c.dims,
                          {.seed = seed, .special_values = seed % 2 == 0, .complete_work = work});
        ASSERT_TRUE(check.ok) << "seed " << seed << ": " << check.message << "\n"
                              << print(c.region);
        checked += check.checked;
        vacuous += check.vacuous;
      }
    }
  }
  EXPECT_GT(checked, 10000);
  EXPECT_LT(vacuous, checked / 5);
}

} // namespace
} // namespace egret
