// Where tensors are computed.
//
// A value that was made from data within a DeviceScope, or by to(device), belongs to that device;
// an operation runs where its operands are, and its result is there. Operands of two devices are
// Error(Device), thrown by the operation: to(device) moves one. Numbers, and what is made of none
// but numbers (zeros, arange, rand), go with the operand beside them.
// All other values are on the device in use, which use_device() names: they follow it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace egret {

/// A device by its name: "cpu", "c", "cuda" (the first GPU), "cuda:1". Error(Value) for a name that
/// is none of these. The device need not be there.
class Device {
public:
  Device(const char* name) : Device(std::string(name)) {}
  Device(const std::string& name);
  const std::string& name() const noexcept { return name_; } ///< in full: "cuda:0"
  friend bool operator==(const Device&, const Device&) = default;

private:
  std::string name_;
};

/// While one lives, what this thread makes belongs to this device: values made from data, results
/// of tensors that belong to none, and leaves that require a gradient. Scopes nest; the last one
/// counts. It is destroyed by the thread that made it, after those made later.
class DeviceScope {
public:
  /// Error(Device) when the device cannot be had; nothing has changed then.
  explicit DeviceScope(const Device& device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

private:
  std::uint16_t before_;
};

/// The device in use: that of this thread's DeviceScope; without one, that of use_device(), "cpu"
/// at the start, or what the environment variable EGRET_DEVICE names.
std::string device();

/// Everything that is evaluated from now on, by any thread, is evaluated on this device: "cpu",
/// "c" (kernels as C11, compiled by EGRET_CC or cc), "cuda" (the first GPU) or "cuda:1"; but for
/// what belongs to a device of its own. Values that are in memory of another device are copied when
/// they are used next; compiled functions trace anew once. Error(Value) for a name that is none of
/// these, Error(Device) that says what is missing when the device cannot be had; nothing has
/// changed then.
void use_device(const std::string& name);

struct DeviceInfo {
  std::string name;        ///< "cpu", "c", "cuda:0"
  std::string description; ///< "NVIDIA H200, sm_90a, 132 multiprocessors, 139.8 GiB"
};
/// The devices that can be used here, the CPU first.
std::vector<DeviceInfo> devices();

/// What a device needs and what of it is there.
struct DeviceStatus {
  bool usable = false;
  std::string
      why_not; ///< the first thing that is missing, as an error would say it; empty if usable
  /// By name: of "cuda" those of "driver" and "nvrtc", such as "CUDA 13.0 (libcuda.so.1)", empty
  /// when there is none; of "c" that of "compiler".
  std::map<std::string, std::string> components;
};
/// Of a device that use_device() takes, without using it. Error(Value) for any other name.
DeviceStatus device_status(const std::string& name);

} // namespace egret
