// Processes that a program forks: of its threads only the one that forks is in the new process.
#pragma once

#include <cstdint>

namespace egret {

/// Another number in a process that was forked since the first call. What starts threads compares:
/// those of another number are not there.
std::uint32_t forks() noexcept;

} // namespace egret
