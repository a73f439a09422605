// device = cuda through the public API, where there is no GPU, and where there is a small one.
#include "egret/device.h"

#include "egret/tensor.h"
#include "support/cpu_levels.h"
#include "support/cuda_kernels.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using testing::error_of;
using testing::fake_cuda;
using testing::ScopedEnvironment;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(UseDevice, NamesThatAreNoDevicesAreRefused) {
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "CUDA"}) {
    const std::string said = error_of(ErrorKind::Value, [&] { use_device(name); });
    EXPECT_EQ(said, "use_device: `" + std::string(name) +
                        "` is no device: cpu, c, cuda, or cuda:0, cuda:1 ... name one");
  }
  EXPECT_EQ(device(), "cpu");
}

TEST(UseDevice, WithoutADriverTheCpuStaysInUse) {
  ScopedEnvironment none("EGRET_CUDA_DRIVER", "/nowhere/libcuda.so.1");
  const Tensor x = tensor({1.f, 2.f});
  const std::string said = error_of(ErrorKind::Device, [] { use_device("cuda"); });
  EXPECT_TRUE(has(said, "cuda: no driver: /nowhere/libcuda.so.1")) << said;
  EXPECT_EQ(device(), "cpu");
  EXPECT_EQ((x * 3).to_vector<float>(), (std::vector<float>{3, 6}));
  EXPECT_FALSE(device_status("cuda").usable);
  EXPECT_TRUE(device_status("cpu").usable);
  for (const DeviceInfo& usable : devices())
    EXPECT_FALSE(usable.name.starts_with("cuda"));
}

TEST(UseDevice, AProgramThatDoesNotFitTellsWhatItNeeds) {
  ScopedEnvironment driver("EGRET_CUDA_DRIVER", EGRET_FAKE_CUDA);
  ScopedEnvironment nvrtc("EGRET_NVRTC", EGRET_FAKE_CUDA);
  testing::TemporaryFolder folder;
  ScopedEnvironment cache("XDG_CACHE_HOME", folder.path().c_str());
  fake_cuda(EGRET_FAKE_CUDA).memory = 1 << 20;
  EXPECT_TRUE(has(error_of(ErrorKind::Device, [] { use_device("cuda:4"); }),
                  "cuda:4: there is no such device"));
  use_device("cuda");
  EXPECT_EQ(device(), "cuda:0");
  const std::string said =
      error_of(ErrorKind::Memory, [] { (ones({1 << 19}) * 2.5f).to_vector<float>(); });
  EXPECT_TRUE(has(said, "needs 0 bytes for intermediate values and 2097152 for results on cuda:0, "
                        "of which 1048576 bytes are free; a smaller batch"))
      << said;
  use_device("cpu");
  EXPECT_EQ((ones({2}) * 2.5f).to_vector<float>(), (std::vector<float>{2.5f, 2.5f}));
}

} // namespace
} // namespace egret
