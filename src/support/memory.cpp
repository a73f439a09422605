#include "support/memory.h"

#include "support/address_sanitizer.h"
#include "support/checked.h"
#include "support/fail.h"

#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(EGRET_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace egret {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Large blocks come straight from the system, so that they can be aligned to huge pages, go back to
// it at once, and so that a refusal is an answer and no abort.
void* map_pages(std::size_t bytes, bool huge) noexcept {
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
  // Advice only: a refusal leaves the system's usual pages.
  madvise(memory, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return memory;
#else
  static_cast<void>(huge);
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
    return map_pages(bytes, true);
  return ::operator new (bytes == 0 ? 1 : bytes, std::align_val_t{kBlockAlignment}, std::nothrow);
}

void free_block(void* memory, std::size_t bytes) noexcept {
  if (bytes >= kHugePage)
    unmap_pages(memory, bytes);
  else
    ::operator delete (memory, std::align_val_t{kBlockAlignment});
}

} // namespace

void* allocate_aligned(std::size_t bytes) {
  void* memory = bytes <= kLargestBlock ? try_allocate(bytes) : nullptr;
  if (memory == nullptr)
    fail(ErrorKind::Memory, "memory: {} bytes cannot be had", bytes);
  return memory;
}

void release_aligned(void* memory, std::size_t bytes) noexcept {
  if (memory != nullptr)
    free_block(memory, bytes);
}

void* allocate_pages(std::size_t bytes, bool huge) {
  void* memory = bytes <= kLargestBlock ? map_pages(bytes, huge) : nullptr;
  if (memory == nullptr)
    fail(ErrorKind::Memory, "memory: {} bytes cannot be had", bytes);
  return memory;
}

void release_pages(void* memory, std::size_t bytes) noexcept {
  unmap_pages(memory, bytes);
}

void discard_pages(void* memory, std::size_t bytes) noexcept {
#if defined(__linux__)
  madvise(memory, bytes, MADV_DONTNEED);
#else
  static_cast<void>(memory), static_cast<void>(bytes);
#endif
}

#if defined(EGRET_ADDRESS_SANITIZER)
void forbid_access(void* memory, std::size_t bytes) noexcept {
  __asan_poison_memory_region(memory, bytes);
}
void allow_access(void* memory, std::size_t bytes) noexcept {
  __asan_unpoison_memory_region(memory, bytes);
}
#else
void forbid_access(void*, std::size_t) noexcept {}
void allow_access(void*, std::size_t) noexcept {}
#endif

} // namespace egret
