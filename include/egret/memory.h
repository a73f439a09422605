// The memory of devices that values and programs use: figures, limits, giving back.
#pragma once

#include <cstdint>
#include <string>

namespace egret {

/// Of one device, in bytes unless it says otherwise.
struct MemoryStats {
  std::uint64_t in_use = 0;             ///< held by values and by programs that run
  std::uint64_t values = 0;             ///< of that, by values of tensors
  std::uint64_t programs = 0;           ///< of that, by intermediate values of programs
  std::uint64_t peak = 0;               ///< largest in_use since reset_memory_peak()
  std::uint64_t reserved = 0;           ///< had from the system: in use, or free for what comes
  std::uint64_t limit = 0;              ///< on `reserved`; 0: none
  std::uint64_t allocations = 0;        ///< number of blocks given out
  std::uint64_t system_allocations = 0; ///< number of times memory was had from the system
  std::uint64_t device_free = 0, device_total = 0; ///< of the whole device; 0: unknown

  std::string text() const; ///< a line each, for people
};

/// Of a device as use_device() names it; it is opened if it was not in use yet. Error(Value) for
/// other names, Error(Device) for a device that cannot be had; so do the functions below.
MemoryStats memory_stats(const std::string& device);

/// From now on at most so many bytes are had from the system for values and for programs that run;
/// 0: no limit, as at the start. What would pass it throws Error(Memory), which tells what holds
/// memory. Every tensor stays usable then: what was pending is pending still, and can be read when
/// others have been let go. A limit below what is in use holds for what comes. Not counted are
/// machine code, plans, and what each thread of a CPU works in (docs/memory.md).
void set_memory_limit(const std::string& device, std::uint64_t bytes);

/// Gives all memory that nothing uses back to the system; the number of bytes.
std::uint64_t trim(const std::string& device);

void reset_memory_peak(const std::string& device);

} // namespace egret
