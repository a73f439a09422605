// What the float types can hold.
#pragma once

#include "egret/dtype.h"

namespace egret {

/// Half the distance from 1 to the next number: 2^-24 for f32; 0 for integers.
double unit_roundoff(DType type);
/// The largest finite and the smallest normal number of a float type.
double largest(DType type);
double smallest_normal(DType type);

} // namespace egret
