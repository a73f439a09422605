// What the devices have in common whose kernels run on this machine's processor.
#pragma once

#include "backend/common/device.h"
#include "backend/common/host_workers.h"
#include "support/memory.h"

namespace egret::backend {

/// The memory is the host's, and a launch has ended when launch() returns.
class HostDevice : public Device {
public:
  void* allocate(std::size_t bytes) final { return allocate_aligned(bytes); }
  void release(void* memory, std::size_t bytes) noexcept final { release_aligned(memory, bytes); }
  void copy(void* to, const void* from, std::size_t bytes, int workers) final {
    workers_.copy(to, from, bytes, workers);
  }
  void synchronize() final {}

protected:
  explicit HostDevice(int workers) : workers_(workers) {}

  HostWorkers workers_;
};

} // namespace egret::backend
