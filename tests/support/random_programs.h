// Random kernel programs of a CPU: loops over workers with a barrier, masked, strided and gathered
// accesses of every dtype, operations whose results do not depend on how they are computed.
#pragma once

#include "backend/common/device.h"

#include <cstdint>
#include <string>

namespace egret::testing {

kernel::KernelProgram random_program(std::uint64_t seed);

/// Runs the program on the device, on one worker and on two: every byte of its outputs must be the
/// interpreter's, but for the bits of NaN. `where` is for messages.
void check_random_program(backend::Device& device, const std::string& where, std::uint64_t seed);

} // namespace egret::testing
