// The parts of a library's C text that are the same for all plans.
#pragma once

#include <string_view>

namespace egret::backend::cuda {

/// What the text begins with, behind the header: the driver's functions, and messages. Wants
/// EG_NAME and the result codes EG_OK ...
std::string_view library_driver_text();

/// The GPU's state; what loads and unloads kernels and values, and launches. Wants `struct EgKernel
/// eg_kernels[]`, `struct EgValue eg_values[]` and the numbers EG_KERNELS, EG_VALUES,
/// EG_VALUE_BYTES and EG_COUNTER_BYTES.
std::string_view library_launch_text();

} // namespace egret::backend::cuda
