// Which axes of a scatter may run in any order.
#pragma once

#include "kernel/region.h"

namespace egret::kernel {

/// Region axes along which no two updates of `output` touch one element, whatever the indices are:
/// its offset, as a sum of terms, is a number in mixed radix whose digits are these axes and the
/// indices. Iterations along them may be shared out among workers or lanes.
std::vector<int> independent_axes(const Region& region, const Output& output);

} // namespace egret::kernel
