// Device memory as tensors and programs hold it.
#pragma once

#include "backend/common/device.h"
#include "egret/memory.h"
#include "runtime/heap.h"
#include "support/adaptive_mutex.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

namespace egret::runtime {

class Pool;

/// What a block of memory is for.
enum class MemoryUse : std::uint8_t {
  Value,   ///< of a tensor
  Program, ///< intermediate values of a program that runs
};

/// Memory of a device that holds a value: a block of its pool, which goes back when the last owner
/// lets go, or memory of somebody else, who is told then.
class Storage {
public:
  /// A block of `pool`, which lives for as long as any block of it does.
  Storage(Pool& pool, void* data, std::size_t bytes, MemoryUse use) noexcept
      : pool_(&pool), data_(data), bytes_(bytes), use_(use) {}
  /// Memory of the pool's device that `let_go` gives back; it is never written. `let_go` must not
  /// throw.
  Storage(std::shared_ptr<Pool> pool, const void* data, std::size_t bytes,
          std::function<void()> let_go) noexcept
      : pool_(pool.get()), data_(const_cast<void*>(data)), bytes_(bytes),
        kept_pool_(std::move(pool)), let_go_(std::move(let_go)) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }         ///< as asked for
  backend::Device& device() const noexcept;                     ///< in whose memory it is
  bool borrowed() const noexcept { return let_go_ != nullptr; } ///< somebody else's memory

  /// Contents only change where a program writes a state in place, which is announced here: equal
  /// versions of one storage are equal contents.
  void change() noexcept { version_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t version() const noexcept { return version_.load(std::memory_order_relaxed); }

private:
  Pool* pool_;
  void* data_;
  std::size_t bytes_;
  MemoryUse use_ = MemoryUse::Value;
  std::shared_ptr<Pool> kept_pool_; ///< of somebody else's memory
  std::function<void()> let_go_;    ///< empty: the memory is the pool's
  std::atomic<std::uint64_t> version_{0};
};
using StoragePtr = std::shared_ptr<Storage>;

/// A device's memory for values and programs (heap.h), with a limit and statistics. Thread-safe.
class Pool : public std::enable_shared_from_this<Pool> {
public:
  explicit Pool(backend::Device& device) : device_(device), heap_(device) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Throws Error(Memory), which says what holds memory, when the device has none, or when the
  /// limit would be passed. What is free was given back before.
  StoragePtr allocate(std::size_t bytes, MemoryUse use = MemoryUse::Value);
  backend::Device& device() const noexcept { return device_; }
  /// Gives all free memory back to the system; the bytes that were given.
  std::size_t trim();
  /// The most bytes to have from the system; 0: no limit.
  void set_limit(std::size_t bytes);
  MemoryStats stats() const;
  void reset_peak();

private:
  friend class Storage;
  struct Used {
    std::size_t count = 0, bytes = 0; ///< blocks
  };
  void put_back(void* data, std::size_t bytes, MemoryUse use) noexcept;
  void count_changes(std::size_t reserved, std::uint64_t system_allocations) noexcept;
  [[noreturn]] void refuse(std::size_t bytes, const std::string& why) const;
  Used& used(MemoryUse use) noexcept { return used_[static_cast<std::size_t>(use)]; }
  bool has_blocks() const noexcept { return used_[0].count + used_[1].count > 0; }

  backend::Device& device_;
  mutable AdaptiveMutex mutex_;
  Heap heap_;
  Used used_[2]; ///< by MemoryUse
  std::uint64_t allocations_ = 0;
  std::size_t limit_ = 0, peak_ = 0;
  /// While there are blocks: threads that allocate change no count of owners beside the lock.
  std::shared_ptr<Pool> self_;
};

/// Whether a device's kernels may use memory of the other one.
bool share_memory(const backend::Device& a, const backend::Device& b) noexcept;
/// Between any two storages: within a device, from or to the host, or through it.
void copy_storage(const Storage& to, const Storage& from, std::size_t bytes);

} // namespace egret::runtime
