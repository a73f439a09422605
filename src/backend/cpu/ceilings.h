// What this machine can do at most, measured with kernels that egret generates itself: the figures
// that other measurements are divided by.
#pragma once

#include "backend/common/device.h"

#include <cstdint>

namespace egret::backend::cpu {

/// One figure: the best and the median of several runs, in the unit that the function names.
struct Ceiling {
  double best = 0, median = 0;
};

/// Floating-point operations a second of fused multiply-adds (two each) on f32 vectors that stay in
/// registers.
Ceiling peak_fma_f32(Device& device, int workers = 0);

/// Bytes a second, read and written both counted, of copying `bytes` bytes (rounded to whole
/// vectors for each worker); `streaming` stores go around the caches.
Ceiling copy_bandwidth(Device& device, std::int64_t bytes, bool streaming, int workers = 0);

/// Bytes a second of reading `bytes` bytes into a sum.
Ceiling read_bandwidth(Device& device, std::int64_t bytes, int workers = 0);

} // namespace egret::backend::cpu
