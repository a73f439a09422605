// Where tensors are computed.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace egret {

/// The device in use: "cpu" at the start, or what the environment variable EGRET_DEVICE names.
std::string device();

/// Everything that is evaluated from now on, by any thread, is evaluated on this device: "cpu",
/// "c" (kernels as C11, compiled by EGRET_CC or cc), "cuda" (the first GPU) or "cuda:1". Values
/// that are in memory of another device are copied when they are used next; compiled functions
/// trace anew once. Error(Value) for a name that is none of these, Error(Device) that says what is
/// missing when the device cannot be had; nothing has changed then.
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
