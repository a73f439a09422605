#include "support/memory.h"

#include "support/checked.h"
#include "support/fail.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace egret {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kLargestRequest = std::size_t{1} << 46;

// Large blocks come straight from the system, so that they can be aligned to huge pages, go back to
// it at once, and so that a refusal is an answer and no abort.
void* map_pages(std::size_t bytes) noexcept {
#if defined(__linux__)
  std::size_t size = round_up(bytes, kHugePage);
  std::size_t room = size + kHugePage;
  void* mapped = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    return nullptr;
  auto start = reinterpret_cast<std::uintptr_t>(mapped);
  std::uintptr_t aligned = round_up(start, std::uintptr_t{kHugePage});
  if (aligned > start)
    munmap(mapped, aligned - start);
  std::size_t behind = start + room - (aligned + size);
  if (behind > 0)
    munmap(reinterpret_cast<void*>(aligned + size), behind);
  auto* memory = reinterpret_cast<void*>(aligned);
  madvise(memory, size, MADV_HUGEPAGE); // advice only: a refusal leaves ordinary pages
  return memory;
#else
  return ::operator new (bytes, std::align_val_t{kHugePage}, std::nothrow);
#endif
}

void unmap_pages(void* memory, std::size_t bytes) noexcept {
#if defined(__linux__)
  munmap(memory, round_up(bytes, kHugePage));
#else
  static_cast<void>(bytes);
  ::operator delete (memory, std::align_val_t{kHugePage});
#endif
}

void* try_allocate(std::size_t bytes) noexcept {
  if (bytes >= kHugePage)
    return map_pages(bytes);
  return ::operator new (bytes == 0 ? 1 : bytes, std::align_val_t{kBlockAlignment}, std::nothrow);
}

void free_block(void* memory, std::size_t bytes) noexcept {
  if (bytes >= kHugePage)
    unmap_pages(memory, bytes);
  else
    ::operator delete (memory, std::align_val_t{kBlockAlignment});
}

// A block that waits in the pool must not be touched: AddressSanitizer is told so.
#if defined(__SANITIZE_ADDRESS__)
void forbid(void* memory, std::size_t bytes) noexcept {
  __asan_poison_memory_region(memory, bytes);
}
void permit(void* memory, std::size_t bytes) noexcept {
  __asan_unpoison_memory_region(memory, bytes);
}
#else
void forbid(void*, std::size_t) noexcept {}
void permit(void*, std::size_t) noexcept {}
#endif

} // namespace

void* allocate_aligned(std::size_t bytes) {
  void* memory = bytes <= kLargestRequest ? try_allocate(bytes) : nullptr;
  if (memory == nullptr)
    fail(ErrorKind::Memory, "memory: {} bytes cannot be had", bytes);
  return memory;
}

void release_aligned(void* memory, std::size_t bytes) noexcept {
  if (memory != nullptr)
    free_block(memory, bytes);
}

MemoryPool::MemoryPool(std::size_t cache_limit, std::size_t limit)
    : cache_limit_(cache_limit), limit_(limit) {}

MemoryPool::~MemoryPool() {
  release_cached();
}

std::size_t MemoryPool::block_size(std::size_t bytes) {
  if (bytes > kLargestRequest)
    fail(ErrorKind::Memory, "memory: {} bytes are more than any machine has", bytes);
  if (bytes <= 4 * kBlockAlignment)
    return round_up(bytes == 0 ? 1 : bytes, kBlockAlignment);
  return round_up(bytes, std::bit_floor(bytes - 1) / 4);
}

// Four classes to a power of two; block sizes are 64, 128, 192, 256, 320 ..
int MemoryPool::class_of(std::size_t block) noexcept {
  std::size_t units = block / kBlockAlignment; // 1, 2, 3, 4, 5, 6, 7, 8, 10, 12 ..
  if (units <= 4)
    return static_cast<int>(units) - 1;
  int log = std::bit_width(units - 1) - 1; // 2 for 5..8
  return 4 * (log - 1) + static_cast<int>((units - 1) >> (log - 2)) - 4;
}

std::size_t MemoryPool::size_of_class(int number) noexcept {
  if (number < 4)
    return kBlockAlignment * static_cast<std::size_t>(number + 1);
  int log = number / 4 + 1; // units are 2^log + quarters
  std::size_t quarters = static_cast<std::size_t>(number % 4 + 1);
  return kBlockAlignment * ((std::size_t{1} << log) + (quarters << (log - 2)));
}

void* MemoryPool::allocate(std::size_t bytes) {
  std::size_t block = block_size(bytes);
  std::lock_guard lock(mutex_);
  if (limit_ != 0 && (block > limit_ || stats_.in_use > limit_ - block))
    fail(ErrorKind::Memory, "memory: {} bytes cannot be had: {} are in use and the limit is {}",
         bytes, stats_.in_use, limit_);
  auto& free = free_[static_cast<std::size_t>(class_of(block))];
  void* memory = nullptr;
  if (!free.empty()) {
    memory = free.back();
    free.pop_back();
    permit(memory, block);
    stats_.cached -= block;
  } else {
    memory = try_allocate(block);
    if (memory == nullptr) {
      release_cached();
      memory = try_allocate(block);
    }
    if (memory == nullptr)
      fail(ErrorKind::Memory, "memory: {} bytes cannot be had, {} are in use", bytes,
           stats_.in_use);
    ++stats_.driver_allocations;
  }
  ++stats_.allocations;
  stats_.in_use += block;
  stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
  return memory;
}

void MemoryPool::release(void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr)
    return;
  std::size_t block = block_size(bytes);
  std::lock_guard lock(mutex_);
  stats_.in_use -= block;
  auto& free = free_[static_cast<std::size_t>(class_of(block))];
  if (block <= cache_limit_ && stats_.cached <= cache_limit_ - block) {
    try {
      free.push_back(memory);
      forbid(memory, block);
      stats_.cached += block;
      return;
    } catch (const std::bad_alloc&) {
      // Not kept, then.
    }
  }
  ++stats_.driver_releases;
  free_block(memory, block);
}

void MemoryPool::trim() noexcept {
  std::lock_guard lock(mutex_);
  release_cached();
}

void MemoryPool::release_cached() noexcept {
  for (std::size_t c = 0; c < free_.size(); ++c) {
    for (void* memory : free_[c]) {
      std::size_t block = size_of_class(static_cast<int>(c));
      permit(memory, block);
      free_block(memory, block);
      ++stats_.driver_releases;
    }
    free_[c].clear();
  }
  stats_.cached = 0;
}

MemoryStats MemoryPool::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

} // namespace egret
