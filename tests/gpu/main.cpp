// Tests that need an NVIDIA GPU, in one program that can be carried to a machine with one. Where
// there is none it says so and ends well: exit code 77 is ctest's for a test that was skipped.
#include "compiler/measurement_process.h"
#include "egret/device.h"
#include "gpu/gpu.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace egret::testing {

backend::Device& gpu() {
  static auto* const device = backend::cuda::make_cuda_device(0).release();
  return *device;
}

} // namespace egret::testing

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "worker") == 0) // this program is its own worker
    return egret::compiler::serve_measurements(0);
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof self - 1) > 0)
    setenv("EGRET_WORKER", self, 0);
  setenv("EGRET_STRICT", "1", 0); // a kernel that is refused is an error here
  ::testing::InitGoogleTest(&argc, argv);
  const egret::DeviceStatus status = egret::device_status("cuda");
  if (!status.usable) {
    std::printf("skipped: no CUDA driver: %s\n", status.why_not.c_str());
    return 77;
  }
  try {
    egret::use_device("cuda");
    for (const egret::DeviceInfo& device : egret::devices())
      std::printf("%s: %s\n", device.name.c_str(), device.description.c_str());
    std::printf("driver %s, NVRTC %s\n", status.components.at("driver").c_str(),
                status.components.at("nvrtc").c_str());
    return RUN_ALL_TESTS();
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
