// Products on a GPU without one: what tests of their schedules share.
#pragma once

#include "backend/cuda/target.h"
#include "backend/reference/kernel_check.h"
#include "backend/reference/program_interpreter.h"
#include "kernel/families.h"
#include "kernel/serialize.h"
#include "support/contraction_regions.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace egret::testing {

/// Tiles by matrix instructions of subgroups and of groups of them.
inline const std::string kMma = "bk=16 bm=32 bn=32 stages=3 wm=1 wn=2 @mma=m16n8k16",
                         kWgmma = "bm=64 bn=64 stages=2 wm=1 @mma=wgmma";

inline kernel::Region built_region(const std::function<std::vector<ir::NodeId>(ir::Graph&)>& make) {
  return region_of(make, 64); // as memory is aligned on a GPU
}

inline kernel::Target gpu(int capability = 90) {
  return backend::cuda::known_target(capability);
}

/// Checks one schedule with as many blocks as `workers` says, so that some take several tiles.
inline void check_product(const kernel::Region& region, const std::string& schedule,
                          int workers = 2, const backend::reference::Bindings& dims = {}) {
  const kernel::Lowered lowered = kernel::gpu_contraction_generator().lower(
      region, kernel::parse_schedule("gpu_contraction " + schedule), gpu());
  ASSERT_TRUE(lowered.ok) << schedule << ": " << lowered.reason << "\n" << kernel::print(region);
  const auto again = kernel::program_of_bytes(kernel::to_bytes(lowered.program));
  EXPECT_EQ(hash_of(again), hash_of(lowered.program));
  const auto launch = [&](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
    backend::reference::interpret(program, block, {.workers = workers});
  };
  try {
    const auto result = backend::reference::verify_kernel(region, lowered.program, launch, dims);
    ASSERT_TRUE(result.ok) << schedule << "\n" << result.message << "\n" << kernel::print(region);
  } catch (const std::exception& e) {
    FAIL() << schedule << "\n" << e.what() << "\n" << kernel::print(lowered.program);
  }
}

} // namespace egret::testing
