// Devices that keep what is released to them for their own next allocations.
#pragma once

namespace egret::backend {

/// What such a device is beside a Device.
class MemoryCache {
public:
  virtual ~MemoryCache() = default;
  /// Gives the memory that nothing uses back to the system.
  virtual void release_cached() noexcept = 0;
};

} // namespace egret::backend
