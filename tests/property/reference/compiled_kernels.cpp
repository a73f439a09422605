// Machine code of kernels under verify_kernel: exact alignment, guard zones, special values,
// outputs in place.
#include "backend/cpu/cpu_device.h"
#include "backend/reference/kernel_check.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret {
namespace {

using namespace backend::reference;

/// Lets each output take the memory of an operand where that is allowed.
bool share_memory(kernel::Region& region) {
  bool any = false;
  std::vector<bool> taken(region.operands.size(), false);
  for (std::size_t o = 0; o < region.outputs.size(); ++o)
    for (std::size_t i = 0; i < region.operands.size(); ++i) {
      kernel::Output& output = region.outputs[o];
      if (output.combine == kernel::Combine::Store && output.alias < 0 && !taken[i] &&
          output.shape == region.operands[i].shape && may_alias(region, int(o), int(i), true)) {
        output.alias = int(i);
        any = taken[i] = true;
      }
    }
  return any;
}

TEST(CompiledKernels, PassVerifyKernel) {
  const auto device = backend::cpu::make_cpu_device(2);
  std::int64_t checked = 0, in_place = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const ir::Graph graph = testing::random_graph(seed, {.ops = 10});
    const auto inputs = testing::random_inputs(graph, seed);
    for (testing::RegionCase& c : testing::region_cases(graph, inputs)) {
      for (kernel::Operand& operand : c.region.operands) // nothing more than an element's
        operand.alignment = std::int64_t(size_of(operand.dtype));
      const bool shares = share_memory(c.region);
      const auto chosen = kernel::lower_greedily(c.region, device->target());
      const auto artifact = device->compile(chosen.program);
      const LaunchKernel launch = [&](const auto& program, const auto& block) {
        device->launch(*artifact, program, block);
      };
      for (bool share : {false, shares}) {
        const KernelCheck check =
            verify_kernel(c.region, chosen.program, launch, c.dims,
                          {.seed = seed, .special_values = seed % 2 == 0, .share_aliases = share});
        ASSERT_TRUE(check.ok) << "seed " << seed << ": " << check.message << "\n"
                              << print(c.region) << print(chosen.program);
        checked += check.checked;
        in_place += share;
      }
    }
  }
  EXPECT_GT(checked, 5000);
  EXPECT_GT(in_place, 10);
}

} // namespace
} // namespace egret
