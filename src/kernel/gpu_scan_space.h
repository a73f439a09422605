// Which schedules of `gpu_scans` are worth trying for a region.
#pragma once

#include "kernel/scan_form.h"
#include "kernel/schedule.h"
#include "kernel/target.h"

#include <cstdint>
#include <vector>

namespace egret::kernel {

/// Slices of a scan in one pass, at the most.
inline constexpr std::int64_t kMostScanPosts = 1 << 16;

/// The axis of the lanes: the scanned one, or another one where that suits memory better.
int gpu_scan_axis(const Region& region, const ScanForm& form);

/// Those first that were measured to take the least time. Their generator and what they store
/// through are left to the caller.
std::vector<Schedule> gpu_scan_schedules(const Region& region, const ScanForm& form,
                                         const Target& target);

} // namespace egret::kernel
