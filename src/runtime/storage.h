// Device memory as tensors and plans hold it: blocks from a pool that remembers freed ones.
#pragma once

#include "backend/common/device.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace egret::runtime {

class Pool;

/// A block of device memory; goes back to its pool when the last owner lets go.
class Storage {
public:
  Storage(std::shared_ptr<Pool> pool, void* data, std::size_t bytes, std::size_t reserved) noexcept
      : pool_(std::move(pool)), data_(data), bytes_(bytes), reserved_(reserved) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; } ///< as asked for
  backend::Device& device() const noexcept;             ///< in whose memory it is

  /// Contents only change where a program writes a state in place, which is announced here: equal
  /// versions of one storage are equal contents.
  void change() noexcept { version_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t version() const noexcept { return version_.load(std::memory_order_relaxed); }

private:
  std::shared_ptr<Pool> pool_;
  void* data_;
  std::size_t bytes_, reserved_;
  std::atomic<std::uint64_t> version_{0};
};
using StoragePtr = std::shared_ptr<Storage>;

/// Keeps freed blocks by size and hands them out again, so that a steady loop asks the device for
/// nothing. Sizes are rounded up to one of four steps between powers of two; a block serves
/// requests of its own rounded size only. When the device has no memory left, free blocks are given
/// back and the request is tried once more. Thread-safe.
class Pool : public std::enable_shared_from_this<Pool> {
public:
  explicit Pool(backend::Device& device) : device_(device) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// Throws Error(Memory) when the device has none, or when `limit` would be passed.
  StoragePtr allocate(std::size_t bytes);
  backend::Device& device() const noexcept { return device_; }
  /// Gives all free blocks back to the device.
  void trim();
  /// Largest number of bytes to hold from the device; 0: no limit.
  void set_limit(std::size_t bytes);

private:
  friend class Storage;
  void put_back(void* data, std::size_t bytes, std::size_t reserved) noexcept;
  void trim_locked() noexcept;

  backend::Device& device_;
  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
  std::size_t held_ = 0, limit_ = 0;
};

/// Whether a device's kernels may use memory of the other one.
bool share_memory(const backend::Device& a, const backend::Device& b) noexcept;
/// Between any two storages: within a device, from or to the host, or through it.
void copy_storage(const Storage& to, const Storage& from, std::size_t bytes);

/// The size of the block that serves a request of `bytes`.
std::size_t rounded_size(std::size_t bytes) noexcept;

} // namespace egret::runtime
