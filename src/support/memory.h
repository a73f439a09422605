// Memory for tensors: aligned blocks from the system, and a pool that keeps released ones for the
// next request.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace egret {

/// Bytes that every block of allocate_aligned and MemoryPool is aligned to: a cache line, and the
/// widest vector.
inline constexpr std::size_t kBlockAlignment = 64;

/// `bytes` bytes aligned to kBlockAlignment, contents undefined; blocks of 2 MiB and more are
/// aligned to 2 MiB and offered huge pages. 0 bytes give a block too. Throws Error(Memory) naming
/// the bytes when the system has none.
void* allocate_aligned(std::size_t bytes);
void release_aligned(void* memory,
                     std::size_t bytes) noexcept; ///< with the bytes that were asked for

/// What a pool did so far. All counts are of bytes unless they say otherwise.
struct MemoryStats {
  std::size_t in_use = 0; ///< handed out now, rounded up to the size class
  std::size_t peak_in_use = 0;
  std::size_t cached = 0;               ///< kept for the next request
  std::uint64_t allocations = 0;        ///< requests
  std::uint64_t driver_allocations = 0; ///< requests that had to ask the system (number)
  std::uint64_t driver_releases = 0;    ///< blocks given back to the system (number)
};

/// A caching allocator with size classes, four to a power of two, so that at most a fifth of a
/// block is unused. Keeps at most `cache_limit` bytes of released blocks, gives all of them back
/// before it reports that memory is exhausted, and hands out at most `limit` bytes (0: no limit).
/// Thread-safe. Blocks must be released before the pool dies.
class MemoryPool {
public:
  explicit MemoryPool(std::size_t cache_limit, std::size_t limit = 0);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  void* allocate(std::size_t bytes); ///< Error(Memory) naming the bytes asked for and in use
  void release(void* memory, std::size_t bytes) noexcept; ///< with the bytes that were asked for
  void trim() noexcept; ///< gives all cached blocks back to the system
  MemoryStats stats() const;

  /// The size of the block that a request of `bytes` gets; Error(Memory) when that is beyond any
  /// machine.
  static std::size_t block_size(std::size_t bytes);

private:
  static constexpr int kClasses = 4 * 48;
  static int class_of(std::size_t block) noexcept;
  static std::size_t size_of_class(int number) noexcept;
  void release_cached() noexcept; ///< under the lock

  const std::size_t cache_limit_, limit_;
  mutable std::mutex mutex_;
  std::array<std::vector<void*>, kClasses> free_;
  MemoryStats stats_;
};

} // namespace egret
