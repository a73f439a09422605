// The backends that a build has, and devices by the names that users give them.
#pragma once

#include "backend/common/device.h"
#include "backend/common/range_tool.h"
#include "support/object_cache.h"

#include <compare>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace egret::backend {

struct DeviceName {
  std::string backend = "cpu"; ///< a Backend's name
  int index = 0;               ///< of its devices
  friend auto operator<=>(const DeviceName&, const DeviceName&) = default;
};

/// A device that a backend has found on this machine.
struct FoundDevice {
  std::string name; ///< "cuda:0"
  bool usable = false;
  std::string text; ///< "NVIDIA H200, sm_90a, 132 multiprocessors, 139.8 GiB", or why not
};

/// What a backend has found of all that it needs: drivers, compilers, devices.
struct Diagnosis {
  bool usable = false;
  std::string why_not; ///< the first thing that is missing, as an error would say it
  /// By name, such as "driver", what was found: "CUDA 13.0 (libcuda.so.1)"; empty: nothing was.
  std::vector<std::pair<std::string, std::string>> components;
  std::vector<FoundDevice> devices;
};

/// One kind of device. A row of the list in backend/all/backends.cpp.
struct Backend {
  std::string_view name; ///< "cuda": users write it for the first device
  bool numbered = false; ///< its devices are "cuda:0", "cuda:1"; else it has one, of its own name
  Diagnosis (*diagnose)() = nullptr;
  /// Device `index`. Error(Device) that says what is missing when it cannot be had.
  std::unique_ptr<Device> (*open)(int index) = nullptr;
  ObjectCache& (*cache)() =
      nullptr; ///< machine code on disk, of the whole process; null: none is kept
  /// What shows the program's ranges beside its devices' work; gives null when none is attached.
  const RangeTool* (*range_tool)() = nullptr;
  int dlpack = 0; ///< DLPack's number of its devices' memory; 0: of the host, or none
};

/// The first backend is the one that every machine has. Immutable, so safe for many threads.
class BackendRegistry {
public:
  explicit BackendRegistry(std::vector<Backend> backends);

  std::span<const Backend> list() const noexcept { return backends_; }
  /// "cpu", "cuda" (the first GPU), "cuda:1". Anything else is an Error(Value) that begins with
  /// `who` and says what may be written.
  DeviceName parse(std::string_view name, std::string_view who) const;
  /// As users write it. InternalError for a backend that is not there.
  std::string text(const DeviceName& name) const;
  /// Error(Device) that says what is missing when the device cannot be had.
  std::unique_ptr<Device> open(const DeviceName& name) const;
  /// All devices that can be used here, by backend.
  std::vector<FoundDevice> usable_devices() const;
  Diagnosis diagnose(const DeviceName& name) const;
  /// "cpu, cuda or cuda:N", for the help of commands.
  std::string choices() const;

private:
  const Backend& backend_of(const DeviceName& name) const;
  std::vector<Backend> backends_;
};

} // namespace egret::backend
