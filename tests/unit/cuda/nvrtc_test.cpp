// Compilation by the real NVRTC, which needs no GPU; skipped where there is none.
#include "backend/cuda/nvrtc.h"
#include "support/cpu_levels.h"
#include "support/cuda_kernels.h"
#include "support/nvrtc.h"

#include <gtest/gtest.h>

#include <thread>

namespace egret::backend::cuda {
namespace {

using egret::testing::axpb_text;
using egret::testing::error_of;

#define NEEDS_NVRTC(name)                                                                          \
  const auto name = testing::nvrtc();                                                              \
  if (!name)                                                                                       \
  GTEST_SKIP() << "no NVRTC on this machine"

TEST(Nvrtc, CompilesForEachSupportedGpuAndTellsItsResources) {
  NEEDS_NVRTC(nvrtc);
  for (int capability : {80, 86, 89, 90, 100, 120}) {
    const std::string arch = nvrtc->architecture_for(capability, capability >= 90);
    const Cubin cubin = nvrtc->compile(axpb_text().text, arch, {}, "axpb");
    if (arch.starts_with("compute_"))
      continue;
    ASSERT_EQ(cubin.kernels.size(), 1u) << cubin.log;
    const KernelResources& k = cubin.kernels[0];
    EXPECT_EQ(k.kernel, "axpb");
    EXPECT_GE(k.registers, 4);
    EXPECT_LE(k.registers, 32);
    EXPECT_EQ(k.spill_stores, 0);
    // The same figures from the cubin's sections.
    const auto again = resources_of_cubin(cubin.code);
    ASSERT_EQ(again.size(), 1u) << arch;
    EXPECT_EQ(again[0].kernel, "axpb");
    EXPECT_EQ(again[0].registers, k.registers) << arch;
    EXPECT_EQ(again[0].stack_bytes, k.stack_bytes) << arch;
  }
}

TEST(Nvrtc, TellsOfSpillsStackAndSharedMemory) {
  NEEDS_NVRTC(nvrtc);
  const char* text = R"(
extern "C" __global__ void big(float* p, int n) {
  __shared__ float s[1024];
  float a[64];
  for (int i = 0; i < 64; ++i) a[i] = p[i * 32 + threadIdx.x];
  s[threadIdx.x] = a[n & 63];
  __syncthreads();
  float t = s[(threadIdx.x + 1) & 31];
  for (int i = 0; i < 64; ++i) t += a[(i * n) & 63];
  p[threadIdx.x] = t;
})";
  const Cubin cubin = nvrtc->compile(text, "sm_80", {}, "big");
  ASSERT_EQ(cubin.kernels.size(), 1u) << cubin.log;
  EXPECT_GE(cubin.kernels[0].stack_bytes, 256); // the array that is indexed by data
  EXPECT_EQ(cubin.kernels[0].shared_bytes, 4096);
  const auto again = resources_of_cubin(cubin.code);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].stack_bytes, cubin.kernels[0].stack_bytes);
  EXPECT_EQ(again[0].shared_bytes, 4096);
  EXPECT_EQ(again[0].registers, cubin.kernels[0].registers);
}

TEST(Nvrtc, ThreadsCompileSideBySide) {
  NEEDS_NVRTC(nvrtc);
  std::vector<std::string> codes(4);
  {
    std::vector<std::jthread> threads;
    for (std::string& code : codes)
      threads.emplace_back([&] { code = nvrtc->compile(axpb_text().text, "sm_80").code; });
  }
  for (const std::string& code : codes)
    EXPECT_EQ(code, codes[0]);
}

TEST(Nvrtc, AnErrorHasTheLogAndAFileWithTheText) {
  NEEDS_NVRTC(nvrtc);
  egret::testing::TemporaryFolder folder;
  egret::testing::ScopedEnvironment cache("EGRET_CACHE", folder.path().c_str());
  const std::string said = error_of(ErrorKind::Unsupported, [&] {
    nvrtc->compile("extern \"C\" __global__ void k() { undeclared = 1; }", "sm_80", {}, "k");
  });
  EXPECT_NE(said.find("kernel k does not compile for sm_80"), std::string::npos) << said;
  EXPECT_NE(said.find("identifier \"undeclared\" is undefined"), std::string::npos) << said;
  EXPECT_NE(said.find(folder.path().string()), std::string::npos) << said;
}

TEST(Nvrtc, AnUnknownGpuGetsPtxForTheNewestBelow) {
  NEEDS_NVRTC(nvrtc);
  const std::string arch = nvrtc->architecture_for(999, true);
  EXPECT_TRUE(arch.starts_with("compute_")) << arch;
  const Cubin ptx = nvrtc->compile(axpb_text().text, arch);
  EXPECT_NE(ptx.code.find(".target"), std::string::npos);
  EXPECT_TRUE(resources_of_cubin(ptx.code).empty());
  EXPECT_NE(error_of(ErrorKind::Device, [&] { nvrtc->architecture_for(20, false); }), "");
}

TEST(Nvrtc, SharedResourcesOfALogAreRead) {
  const auto kernels = resources_of_log(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'one' for 'sm_90a'\n"
      "ptxas info    : Function properties for one\n"
      "    64 bytes stack frame, 32 bytes spill stores, 16 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 1 barriers, 2048 bytes smem, 560 bytes cmem[0]\n"
      "ptxas info    : Compiling entry function 'two' for 'sm_90a'\n"
      "ptxas info    : Used 8 registers, 352 bytes cmem[0]\n");
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0], (KernelResources{"one", 168, 64, 32, 16, 2048, 560}));
  EXPECT_EQ(kernels[1], (KernelResources{"two", 8, 0, 0, 0, 0, 352}));
}

TEST(Nvrtc, BytesThatAreNoCubinAreRefused) {
  EXPECT_NE(error_of(ErrorKind::File, [] { resources_of_cubin("not a cubin"); }), "");
  NEEDS_NVRTC(nvrtc);
  const std::string code = nvrtc->compile(axpb_text().text, "sm_80").code;
  for (std::size_t cut : {std::size_t{10}, std::size_t{64}, code.size() / 2})
    EXPECT_NE(error_of(ErrorKind::File, [&] { resources_of_cubin(code.substr(0, cut)); }), "");
}

} // namespace
} // namespace egret::backend::cuda
