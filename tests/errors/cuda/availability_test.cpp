// What egret says where CUDA, or a part of it, is not there.
#include "backend/cuda/context.h"
#include "backend/cuda/cuda_device.h"
#include "support/cpu_levels.h"
#include "support/cuda_kernels.h"

#include <gtest/gtest.h>

namespace egret::backend::cuda {
namespace {

using egret::testing::axpb_program;
using egret::testing::axpb_text;
using egret::testing::error_of;
using egret::testing::fake_cuda;
using egret::testing::TemporaryFolder;

const LibraryPaths kNothing{{"/nowhere/libcuda.so.1", "libno-such-driver.so"},
                            {"/nowhere/libnvrtc.so"}};
const LibraryPaths kFake{{EGRET_FAKE_CUDA}, {EGRET_FAKE_CUDA}};
// A library that is there and is none of the two.
const LibraryPaths kWrong{{"libm.so.6"}, {"libm.so.6"}};

CudaOptions fake_options() {
  return {axpb_text, kFake, nullptr};
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(CudaErrors, NoDriverNamesWhatWasTriedAndThatTheCpuServes) {
  const std::string said = error_of(ErrorKind::Device, [] { Driver::load(kNothing); });
  EXPECT_TRUE(mentions(said, "cuda: no driver")) << said;
  EXPECT_TRUE(mentions(said, "/nowhere/libcuda.so.1")) << said;
  EXPECT_TRUE(mentions(said, "libno-such-driver.so")) << said;
  EXPECT_TRUE(mentions(said, "CPU")) << said;
}

TEST(CudaErrors, FilesThatFailForOneReasonShareIt) {
  const std::vector<std::string> none = {"/nowhere/a.so", "/nowhere/b.so"};
  EXPECT_EQ(Library::open_first(none).failures(),
            "/nowhere/a.so, /nowhere/b.so: cannot open shared object file: No such file or "
            "directory");
}

TEST(CudaErrors, EmptyVariablesNameNoFiles) {
  const egret::testing::ScopedEnvironment driver("EGRET_CUDA_DRIVER", ""), nvrtc("EGRET_NVRTC", ""),
      cublaslt("EGRET_CUBLASLT", "");
  const LibraryPaths paths = default_paths();
  EXPECT_EQ(paths.driver.at(0), "libcuda.so.1");
  for (const auto* list : {&paths.driver, &paths.nvrtc, &paths.cublaslt})
    for (const std::string& path : *list)
      EXPECT_NE(path, ""); // the dynamic linker opens the program itself for it
  const egret::testing::ScopedEnvironment home("CUDA_HOME", "");
  for (const std::string& path : default_paths().nvrtc)
    EXPECT_FALSE(path.starts_with("/lib64/")) << path;
}

TEST(CudaErrors, ALibraryThatIsNoDriverIsNamedWithWhatItLacks) {
  const std::string said = error_of(ErrorKind::Device, [] { Driver::load(kWrong); });
  EXPECT_TRUE(mentions(said, "libm.so.6 is no usable driver")) << said;
  EXPECT_TRUE(mentions(said, "cuInit")) << said;
}

TEST(CudaErrors, AnOldDriverIsToldApartByItsVersion) {
  fake_cuda(EGRET_FAKE_CUDA).driver_version = 11040;
  const std::string said = error_of(ErrorKind::Device, [] { Driver::load(kFake); });
  EXPECT_TRUE(mentions(said, "is for CUDA 11.4, which is too old: CUDA 12.0 or later")) << said;
}

TEST(CudaErrors, ADriverWithoutGpusSaysSo) {
  fake_cuda(EGRET_FAKE_CUDA).devices = 0;
  const std::string said = error_of(ErrorKind::Device, [] { Driver::load(kFake); });
  EXPECT_TRUE(mentions(said, "sees no GPU")) << said;
  EXPECT_TRUE(mentions(said, "CUDA_VISIBLE_DEVICES")) << said;
}

TEST(CudaErrors, AnUnknownIndexNamesTheDevicesThatAreThere) {
  auto& fake = fake_cuda(EGRET_FAKE_CUDA);
  std::string said = error_of(ErrorKind::Device, [] { make_cuda_device(3, fake_options()); });
  EXPECT_EQ(said, "cuda:3: there is no such device: this machine has one GPU, cuda:0");
  fake.devices = 2;
  said = error_of(ErrorKind::Device, [] { make_cuda_device(2, fake_options()); });
  EXPECT_EQ(said, "cuda:2: there is no such device: this machine has 2 GPUs, cuda:0 to cuda:1");
}

TEST(CudaErrors, AnOldGpuIsRefusedWithItsCapability) {
  fake_cuda(EGRET_FAKE_CUDA).capability = 75;
  const std::string said = error_of(ErrorKind::Device, [] { make_cuda_device(0, fake_options()); });
  EXPECT_TRUE(mentions(said, "Fake GPU has compute capability 7.5; 8.0 or later")) << said;
}

TEST(CudaErrors, NoNvrtcIsToldAtTheFirstCompilationAndMemoryStillWorks) {
  fake_cuda(EGRET_FAKE_CUDA);
  CudaOptions options = fake_options();
  options.paths.nvrtc = kNothing.nvrtc;
  const auto device = make_cuda_device(0, options);
  const std::string said = error_of(ErrorKind::Device, [&] { device->compile(axpb_program()); });
  EXPECT_TRUE(mentions(said, "no NVRTC")) << said;
  EXPECT_TRUE(mentions(said, "/nowhere/libnvrtc.so")) << said;
  EXPECT_TRUE(mentions(said, "EGRET_NVRTC")) << said;
  device->release(device->allocate(64), 64);
}

TEST(CudaErrors, AnOldNvrtcIsRefused) {
  fake_cuda(EGRET_FAKE_CUDA).nvrtc_version = 11;
  const std::string said = error_of(ErrorKind::Device, [] { Nvrtc::load(kFake); });
  EXPECT_TRUE(mentions(said, "is of CUDA 11.0, which is too old")) << said;
}

TEST(CudaErrors, ExhaustedMemoryTellsWhatWasAskedForFreeAndHeld) {
  fake_cuda(EGRET_FAKE_CUDA).memory = 1 << 20;
  const auto device = make_cuda_device(0, fake_options());
  void* held = device->allocate(600 << 10);
  const std::string said = error_of(ErrorKind::Memory, [&] { device->allocate(600 << 10); });
  EXPECT_EQ(said, "cuda:0: 614400 bytes cannot be had: 434176 of 1048576 bytes are free, this "
                  "process holds 614400");
  device->release(held, 600 << 10);
  device->release(device->allocate(600 << 10), 600 << 10); // usable as before
}

TEST(CudaErrors, AKernelThatDoesNotCompileIsKeptInANamedFile) {
  TemporaryFolder folder;
  testing::ScopedEnvironment cache("EGRET_CACHE", folder.path().c_str());
  auto& fake = fake_cuda(EGRET_FAKE_CUDA);
  fake.compile_error = "axpb.cu(3): error: expected a \";\"\n";
  const auto device = make_cuda_device(0, fake_options());
  const std::string said =
      error_of(ErrorKind::Unsupported, [&] { device->compile(axpb_program()); });
  EXPECT_TRUE(mentions(said, "kernel axpb does not compile for sm_90a")) << said;
  EXPECT_TRUE(mentions(said, "expected a \";\"")) << said;
  const std::size_t at = said.find(folder.path().string());
  ASSERT_NE(at, std::string::npos) << said;
  const std::string file = said.substr(at, said.find(')', at) - at);
  EXPECT_TRUE(std::filesystem::exists(file)) << file;
  fake.compile_error = nullptr;
  EXPECT_NO_THROW(device->compile(axpb_program())); // usable as before
}

TEST(CudaErrors, AFailingCallIsNamedWithWhatItWasDoing) {
  auto& fake = fake_cuda(EGRET_FAKE_CUDA);
  const auto device = make_cuda_device(0, fake_options());
  const auto program = axpb_program();
  const auto artifact = device->compile(program);
  void* memory = device->allocate(64);
  void* pointers[] = {memory, memory};
  const std::int64_t n = 16;
  const std::uint64_t scalars[] = {0, 0};
  fake.failing = "cuLaunchKernelEx";
  fake.failure = kIllegalAddress;
  std::string said = error_of(ErrorKind::Device, [&] {
    device->launch(*artifact, program, {pointers, &n, scalars, nullptr, nullptr});
  });
  EXPECT_TRUE(mentions(said,
                       "launching kernel axpb on cuda:0 (1 blocks of 128 threads): an illegal "
                       "memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)"))
      << said;
  EXPECT_TRUE(mentions(said, "memory is lost")) << said;
  fake.failing = "cuMemcpyHtoDAsync_v2";
  fake.failure = kInvalidValue;
  said = error_of(ErrorKind::Device, [&] { device->copy_in(memory, scalars, 8); });
  EXPECT_TRUE(mentions(said, "copying 8 bytes to cuda:0: a fake error")) << said;
  fake.failing = nullptr;
  device->release(memory, 64);
}

TEST(CudaErrors, KernelsThatAskForTooMuchAreRefused) {
  fake_cuda(EGRET_FAKE_CUDA);
  CudaOptions options = fake_options();
  options.text = [](const auto& program, const auto& target) {
    KernelText text = axpb_text(program, target);
    text.shared_bytes = 300 << 10;
    return text;
  };
  std::string said = error_of(ErrorKind::Unsupported,
                              [&] { make_cuda_device(0, options)->compile(axpb_program()); });
  EXPECT_EQ(said, "cuda:0: kernel axpb asks for 307200 bytes of shared memory a block, 232448 are "
                  "there");
  said = error_of(ErrorKind::Unsupported,
                  [] { make_cuda_device(0, fake_options())->compile(axpb_program(2048)); });
  EXPECT_EQ(said, "cuda:0: kernel axpb asks for blocks of 2048 threads (1 to 1024)");
}

TEST(CudaErrors, AvailabilityTellsTheFirstThingThatIsMissing) {
  auto& fake = fake_cuda(EGRET_FAKE_CUDA);
  Availability a = availability(kFake);
  EXPECT_TRUE(a.usable) << a.why_not;
  EXPECT_EQ(a.driver, std::string("CUDA 13.0 (") + EGRET_FAKE_CUDA + ")");
  ASSERT_EQ(a.devices.size(), 1u);
  EXPECT_EQ(a.devices[0].text, "Fake GPU, sm_90a, 4 multiprocessors, 1.0 GiB");
  a = availability({kFake.driver, kNothing.nvrtc});
  EXPECT_FALSE(a.usable);
  EXPECT_TRUE(mentions(a.why_not, "no NVRTC")) << a.why_not;
  a = availability(kNothing);
  EXPECT_FALSE(a.usable);
  EXPECT_TRUE(mentions(a.why_not, "no driver")) << a.why_not;
  EXPECT_TRUE(a.driver.empty());
  fake.devices = 0;
  EXPECT_TRUE(mentions(availability(kFake).why_not, "sees no GPU"));
}

TEST(CudaErrors, TargetsBelowAmpereAreRefused) {
  EXPECT_EQ(error_of(ErrorKind::Value, [] { known_target(75); }),
            "cuda: compute capability 7.5 is not supported: 8.0 or later is needed");
}

} // namespace
} // namespace egret::backend::cuda
