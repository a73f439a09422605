// Memory for tensors from the system: aligned blocks, and pages.
#pragma once

#include <cstddef>

namespace egret {

/// Bytes that every block of allocate_aligned is aligned to: a cache line, and the widest vector.
inline constexpr std::size_t kBlockAlignment = 64;

/// `bytes` bytes aligned to kBlockAlignment, contents undefined; blocks of 2 MiB and more are
/// aligned to 2 MiB and offered huge pages. 0 bytes give a block too. Throws Error(Memory) naming
/// the bytes when the system has none.
void* allocate_aligned(std::size_t bytes);
void release_aligned(void* memory,
                     std::size_t bytes) noexcept; ///< with the bytes that were asked for

/// The most bytes that any machine is taken to have.
inline constexpr std::size_t kLargestBlock = std::size_t{1} << 46;

/// Whole pages, zero, aligned to 2 MiB and offered huge pages if `huge`. The system commits memory
/// to them as they are written. Throws Error(Memory) naming the bytes when there is none.
void* allocate_pages(std::size_t bytes, bool huge);
void release_pages(void* memory, std::size_t bytes) noexcept; ///< as they were asked for
/// The memory of some of these pages is given back until they are written again; their contents are
/// undefined then. `memory` and `bytes` are multiples of 64 KiB.
void discard_pages(void* memory, std::size_t bytes) noexcept;

/// Memory that must not be touched until allow_access(): AddressSanitizer is told so.
void forbid_access(void* memory, std::size_t bytes) noexcept;
void allow_access(void* memory, std::size_t bytes) noexcept;

} // namespace egret
