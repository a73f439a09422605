// What the devices have in common whose kernels run on this machine's processor.
#pragma once

#include "backend/common/device.h"
#include "backend/common/host_workers.h"
#include "support/memory.h"

namespace egret::backend {

/// The memory is the host's, and a launch has ended when launch() returns.
class HostDevice : public Device {
public:
  void* allocate(std::size_t bytes) final { return memory_.allocate(bytes); }
  void release(void* memory, std::size_t bytes) noexcept final { memory_.release(memory, bytes); }
  void synchronize() final {}

protected:
  explicit HostDevice(int workers) : workers_(workers), memory_(kCacheLimit) {}

  HostWorkers workers_;

private:
  /// Released blocks that a device keeps for its next requests.
  static constexpr std::size_t kCacheLimit = std::size_t{4} << 30;

  MemoryPool memory_;
};

} // namespace egret::backend
