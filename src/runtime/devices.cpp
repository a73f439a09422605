#include "egret/device.h"

#include "backend/cuda/context.h"
#include "runtime/device_name.h"
#include "runtime/runtime.h"
#include "support/fail.h"

#include <charconv>

namespace egret {
namespace runtime {

DeviceName parse_device(std::string_view name, std::string_view who) {
  if (name == "cpu")
    return {};
  if (name == "cuda")
    return {true, 0};
  if (name.starts_with("cuda:")) {
    DeviceName device{true, -1};
    const char* end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + 5, end, device.index);
    if (read.ec == std::errc{} && read.ptr == end && device.index >= 0)
      return device;
  }
  fail(ErrorKind::Value, "{}: `{}` is no device: cpu, cuda, or cuda:0, cuda:1 ... name one", who,
       name);
}

} // namespace runtime

std::string device() {
  return runtime::Runtime::instance().device().name();
}

void use_device(const std::string& name) {
  const runtime::DeviceName device = runtime::parse_device(name, "use_device");
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
