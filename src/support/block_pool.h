// Memory for small objects that are made and dropped by the thousand.
#pragma once

#include "support/address_sanitizer.h"

#include <cstddef>
#include <new>

namespace egret {

#if defined(EGRET_ADDRESS_SANITIZER)
inline constexpr bool kBlockPools = false; // it watches each block
#else
inline constexpr bool kBlockPools = true;
#endif

/// Blocks of one size that this thread has freed, to be given out again, the last one first. They
/// go when the thread ends; what it frees later goes at once.
template <std::size_t kBytes>
class BlockPool {
public:
  static void* take() {
    Block* const block = list_.first;
    if (block == nullptr)
      return ::operator new(kBytes);
    list_.first = block->next;
    --list_.count;
    return block;
  }
  static void give(void* memory) noexcept {
    if (!kBlockPools || list_.count >= list_.most) {
      put_beyond(memory);
      return;
    }
    list_.first = new (memory) Block{list_.first};
    ++list_.count;
  }

private:
  static constexpr std::size_t kMost = (std::size_t{2} << 20) / kBytes;
  static_assert(kBytes >= sizeof(void*));
  struct Block {
    Block* next;
  };
  /// Needs no constructor and no destructor, so that it is there before and after all others.
  struct List {
    Block* first;
    std::size_t count, most; ///< most: 0 before the first block is freed and when the thread ends
    bool ended;
  };
  struct AtEnd {
    ~AtEnd() {
      list_.most = 0;
      list_.ended = true;
      while (Block* const block = list_.first) {
        list_.first = block->next;
        ::operator delete(block);
      }
      list_.count = 0;
    }
  };
  [[gnu::noinline]] static void put_beyond(void* memory) noexcept {
    if (!kBlockPools || list_.most != 0 || list_.ended) {
      ::operator delete(memory);
      return;
    }
    thread_local const AtEnd at_end;
    static_cast<void>(at_end);
    list_.most = kMost;
    give(memory);
  }

  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local List list_{};
};

/// An allocator for std::allocate_shared.
template <class T>
struct BlockAllocator {
  using value_type = T;
  BlockAllocator() noexcept = default;
  template <class U>
  BlockAllocator(const BlockAllocator<U>&) noexcept {}
  T* allocate(std::size_t count) {
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    return static_cast<T*>(count == 1 ? BlockPool<sizeof(T)>::take()
                                      : ::operator new(count * sizeof(T)));
  }
  void deallocate(T* at, std::size_t count) noexcept {
    if (count == 1)
      BlockPool<sizeof(T)>::give(at);
    else
      ::operator delete(at);
  }
  friend bool operator==(const BlockAllocator&, const BlockAllocator&) noexcept { return true; }
};

} // namespace egret
