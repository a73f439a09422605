#include "egret/device.h"

#include "backend/common/device_name.h"
#include "backend/cuda/context.h"
#include "runtime/runtime.h"

namespace egret {
std::string device() {
  return runtime::Runtime::instance().device().name();
}

void use_device(const std::string& name) {
  const backend::DeviceName device = backend::parse_device(name, "use_device");
  runtime::Runtime::instance().use(device.cuda ? runtime::Engine::Cuda : runtime::Engine::Cpu,
                                   device.index);
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> all{{"cpu", "this machine's processor"}};
  const auto cuda = backend::cuda::availability();
  if (cuda.usable)
    for (const backend::cuda::AvailableDevice& d : cuda.devices)
      if (d.usable)
        all.push_back({d.name, d.text});
  return all;
}

CudaStatus cuda_status() {
  auto found = backend::cuda::availability();
  return {found.usable, std::move(found.why_not), std::move(found.driver), std::move(found.nvrtc)};
}

} // namespace egret
