// Which schedules of `gpu_rows` are worth trying for a region's rows.
#pragma once

#include "kernel/region.h"
#include "kernel/schedule.h"
#include "kernel/target.h"

#include <vector>

namespace egret::kernel {

/// Elements of a thread's code without loops, at the most.
inline constexpr std::int64_t kMostRowUnrolled = 512;

/// Those first that are estimated to take the least time (RowTime). Empty where rows are not what
/// the region's threads should go along. They need not lower.
std::vector<Schedule> row_schedules(const Region& region, const Target& target);

} // namespace egret::kernel
