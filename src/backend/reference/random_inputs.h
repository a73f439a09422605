// Random operands for checking kernels.
#pragma once

#include "backend/reference/host_array.h"
#include "kernel/region.h"

#include <cstdint>

namespace egret::backend::reference {

/// Numbers from a counter: the same for the same seed on every machine.
class RandomNumbers {
public:
  explicit RandomNumbers(std::uint64_t seed) : state_(seed) {}
  std::uint64_t word();
  double uniform(double lo, double hi);
  std::int64_t integer(std::int64_t lo, std::int64_t hi); ///< both included

private:
  std::uint64_t state_;
};

/// `elements` values: floats in -2..2; integers small, or when the region uses data as coordinates
/// within the ranges that their guards give, with a few outside. With `special`, one float in 16 is
/// NaN, infinite, zero of either sign, huge, tiny or subnormal. Arrays of more than a million
/// repeat the first 1,000,003.
HostArray random_array(DType type, std::int64_t elements, std::int64_t index_limit, bool special,
                       RandomNumbers& random);

/// The largest exclusive bound that a guard of the region puts on an indirect coordinate; 0 when it
/// has none.
std::int64_t index_limit_of(const kernel::Region& region, const Bindings& sizes);

} // namespace egret::backend::reference
