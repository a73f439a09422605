// Devices on which others may work in a queue of their own.
#pragma once

namespace egret::backend {

/// What such a device is beside a Device.
class DefaultStream {
public:
  virtual ~DefaultStream() = default;
  /// Waits for what others have put into the queue that programs use by default. Error(Device) when
  /// that failed.
  virtual void synchronize_default() = 0;
};

} // namespace egret::backend
