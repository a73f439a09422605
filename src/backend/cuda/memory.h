// Memory of a GPU, and the way to it from the host and back.
#pragma once

#include "backend/common/device.h"
#include "backend/cuda/context.h"

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace egret::backend::cuda {

/// Memory in the order of the context's stream: a block that is released may be handed out again at
/// once, since all that still uses it was queued before.
class DeviceMemory {
public:
  explicit DeviceMemory(std::shared_ptr<const Context> context);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* allocate(std::size_t bytes); ///< Error(Memory) that names what is asked for, free and held
  void release(void* memory) noexcept;
  void trim() noexcept; ///< gives what was released back to the driver
  MemoryState state() const;

private:
  std::shared_ptr<const Context> context_;
  PoolHandle pool_ = nullptr;
};

/// Copies between the host's ordinary memory and the device's, through memory that both can reach.
/// Thread-safe.
class Staging {
public:
  explicit Staging(std::shared_ptr<const Context> context);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void copy_in(DevicePointer to, const void* from, std::size_t bytes);
  void copy_out(void* to, DevicePointer from, std::size_t bytes);

private:
  static constexpr std::size_t kRing = std::size_t{32} << 20; ///< for copies to the device
  static constexpr std::size_t kPiece = std::size_t{4} << 20; ///< two of them for copies back
  struct Taken {
    std::size_t end; ///< of the bytes that wait for the event, counted without wrapping
    std::unique_ptr<Event> event;
  };

  std::byte* pinned(void*& memory, std::size_t bytes);
  std::size_t take(std::size_t bytes);
  std::unique_ptr<Event> fresh_event();

  std::shared_ptr<const Context> context_;
  std::mutex in_mutex_, out_mutex_;
  void* ring_ = nullptr;
  void* back_ = nullptr;
  std::size_t head_ = 0, tail_ = 0; ///< of the ring, counted without wrapping
  std::deque<Taken> taken_;
  std::vector<std::unique_ptr<Event>> free_events_;
  std::unique_ptr<Event> arrived_[2];
};

} // namespace egret::backend::cuda
