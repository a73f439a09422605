#include "egraph/words.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace egret::egraph {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
/// Smaller arrays stay with the allocator, where they share pages.
constexpr std::size_t kLarge = std::size_t{1} << 20;

#ifdef __linux__
/// Address space of `bytes` (a multiple of the huge page), aligned to huge pages. Pages that are
/// never touched take no memory.
void* map_aligned(std::size_t bytes) {
  void* raw = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED)
    throw std::bad_alloc();
  char* from = static_cast<char*>(raw);
  std::size_t skip = (kHugePage - reinterpret_cast<std::uintptr_t>(from) % kHugePage) % kHugePage;
  if (skip != 0)
    munmap(from, skip);
  munmap(from + skip + bytes, kHugePage - skip);
  madvise(from + skip, bytes, MADV_HUGEPAGE); // advice: no harm if it is refused
  return from + skip;
}
#endif

} // namespace

void* grow_storage(void* old, std::size_t used, std::size_t& capacity, std::size_t bytes) {
#ifdef __linux__
  if (bytes >= kLarge) {
    // Room ahead is free until it is touched, so there is much of it.
    std::size_t room = (bytes * 2 + kHugePage - 1) / kHugePage * kHugePage;
    void* fresh = map_aligned(room);
    if (capacity >= kLarge) {
      void* moved = mremap(old, capacity, room, MREMAP_MAYMOVE | MREMAP_FIXED, fresh);
      if (moved == MAP_FAILED) {
        munmap(fresh, room);
        throw std::bad_alloc();
      }
      madvise(moved, room, MADV_HUGEPAGE);
    } else if (used != 0) {
      std::memcpy(fresh, old, used);
    }
    if (capacity < kLarge)
      std::free(old);
    capacity = room;
    return fresh;
  }
#else
  (void)used;
#endif
  void* fresh = std::realloc(old, bytes);
  if (fresh == nullptr)
    throw std::bad_alloc();
  capacity = bytes;
  return fresh;
}

void free_storage(void* storage, std::size_t capacity) noexcept {
#ifdef __linux__
  if (capacity >= kLarge) {
    munmap(storage, capacity);
    return;
  }
#else
  (void)capacity;
#endif
  std::free(storage);
}

} // namespace egret::egraph
