// The GPU that these tests run on.
#pragma once

#include "backend/cuda/cuda_device.h"
#include "support/region_runner.h"

#include <string>

namespace egret::testing {

/// The first one, opened once; the program does not get to the tests without it.
backend::Device& gpu();

/// Runs a region by every schedule of a generator: each agrees with the reference, and gives the
/// same bits twice. Empty, or what is wrong.
std::string check_all_schedules(const RegionCase& region, const std::string& generator);

} // namespace egret::testing
