#include "egret/device.h"

#include "backend/all/backends.h"
#include "runtime/runtime.h"
#include "support/fail.h"

#include <algorithm>

namespace egret {

Device::Device(const std::string& name)
    : name_(backend::backends().text(backend::backends().parse(name, "device"))) {}

namespace {

runtime::DeviceNumber opened(const Device& device) {
  const backend::DeviceName name = backend::backends().parse(device.name(), "DeviceScope");
  runtime::Runtime::instance().pool(name); // refuses what cannot be had
  return runtime::number_of(name);
}

} // namespace

DeviceScope::DeviceScope(const Device& device)
    : before_(runtime::ThreadDevice::exchange(opened(device))) {}
DeviceScope::~DeviceScope() {
  runtime::ThreadDevice::exchange(before_);
}

std::string device() {
  return runtime::Runtime::instance().device().name();
}

void use_device(const std::string& name) {
  runtime::Runtime::instance().use(backend::backends().parse(name, "use_device"));
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> all;
  for (backend::FoundDevice& found : backend::backends().usable_devices())
    all.push_back({std::move(found.name), std::move(found.text)});
  return all;
}

DeviceStatus device_status(const std::string& name) {
  const backend::DeviceName device = backend::backends().parse(name, "device_status");
  backend::Diagnosis found = backend::backends().diagnose(device);
  DeviceStatus status{found.usable, std::move(found.why_not), {}};
  for (auto& [component, text] : found.components)
    status.components.emplace(std::move(component), std::move(text));
  if (!status.usable)
    return status;
  const std::string full = backend::backends().text(device);
  const auto at = std::find_if(found.devices.begin(), found.devices.end(),
                               [&](const backend::FoundDevice& d) { return d.name == full; });
  status.usable = at != found.devices.end() && at->usable;
  if (!status.usable)
    status.why_not =
        at == found.devices.end() ? fmt::format("{}: there is no such device", full) : at->text;
  return status;
}

} // namespace egret
