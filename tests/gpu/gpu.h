// The GPU that these tests run on.
#pragma once

#include "backend/cuda/cuda_device.h"

namespace egret::testing {

/// The first one, opened once; the program does not get to the tests without it.
backend::Device& gpu();

} // namespace egret::testing
