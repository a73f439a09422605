// This machine's memory.
#pragma once

#include <cstdint>

namespace egret {

/// Bytes that new work can have without swapping: what the system says is available, and no more
/// than what the control group of this process has left (Linux, cgroup v2). 0 where the system does
/// not say.
std::uint64_t free_host_memory();

} // namespace egret
