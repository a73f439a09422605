// The device on a driver that runs on the host: memory, copies, launches, recorded steps.
#include "support/cuda_kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace egret::backend::cuda {
namespace {

using egret::testing::axpb_program;
using egret::testing::axpb_text;
using egret::testing::fake_cuda;
using egret::testing::FakeCuda;
using egret::testing::launch_axpb;

class CudaDeviceTest : public ::testing::Test {
protected:
  CudaDeviceTest() : fake(fake_cuda(EGRET_FAKE_CUDA)) {
    fake.launcher = launch_axpb;
    device = make_cuda_device(0, {axpb_text, {{EGRET_FAKE_CUDA}, {EGRET_FAKE_CUDA}}, nullptr});
    program = axpb_program();
    artifact = device->compile(program);
  }

  /// out = a * in + b, as a part of a step; its numbers live as long as the object.
  struct Axpb {
    void* pointers[2];
    std::int64_t n;
    std::uint64_t scalars[2] = {};
    Axpb(void* out, void* in, std::int64_t size, float a, float b) : pointers{in, out}, n(size) {
      std::memcpy(&scalars[0], &a, sizeof a);
      std::memcpy(&scalars[1], &b, sizeof b);
    }
    kernel::ArgBlock block() const { return {pointers, &n, scalars, nullptr, nullptr}; }
  };
  Work work(const Axpb& axpb) const {
    Work w;
    w.artifact = artifact.get();
    w.program = &program;
    w.block = axpb.block();
    return w;
  }
  static Work copy(void* to, const void* from, std::size_t bytes) {
    Work w;
    w.to = to;
    w.from = from;
    w.bytes = bytes;
    return w;
  }
  std::vector<float> read(const void* memory, std::size_t count) {
    std::vector<float> values(count);
    device->copy_out(values.data(), memory, count * sizeof(float));
    return values;
  }

  FakeCuda& fake;
  std::unique_ptr<Device> device;
  kernel::KernelProgram program;
  std::shared_ptr<const Artifact> artifact;
};

TEST_F(CudaDeviceTest, TellsItsTarget) {
  const kernel::Target& t = device->target();
  EXPECT_EQ(device->name(), "cuda:0");
  EXPECT_EQ(t.device, "cuda");
  EXPECT_EQ(t.name, "sm_90a");
  EXPECT_EQ(t.architecture, 90);
  EXPECT_EQ(t.workers, 4);
  EXPECT_EQ(t.block_shared_bytes, 227 << 10);
  EXPECT_EQ(t.memory_bytes, 1 << 30);
  EXPECT_NE(t.fingerprint, known_target(90).fingerprint);
  EXPECT_FALSE(device->host_memory());
}

// Four schedulers share out the registers: of 13 warps one of them has four.
TEST(KnownTarget, ThreadsHaveTheRegistersOfTheFullestScheduler) {
  const kernel::Target t = known_target(90);
  EXPECT_EQ(t.registers_of_thread(32), 255);
  EXPECT_EQ(t.registers_of_thread(384), 168);
  EXPECT_EQ(t.registers_of_thread(385), 128);
  EXPECT_EQ(t.registers_of_thread(416), 128);
  EXPECT_EQ(t.registers_of_thread(1024), 64);
}

TEST_F(CudaDeviceTest, CopiesOfAnySizeArriveWhole) {
  // Beyond the ring of staging memory, so that its pieces are used again.
  for (std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{4} << 20,
                            (std::size_t{4} << 20) + 3, (std::size_t{70} << 20) + 5}) {
    std::vector<unsigned char> there(bytes), back(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      there[i] = static_cast<unsigned char>(i * 7 + i / 4096);
    void* a = device->allocate(bytes);
    void* b = device->allocate(bytes);
    device->copy_in(a, there.data(), bytes);
    device->copy(b, a, bytes);
    device->copy_out(back.data(), b, bytes);
    EXPECT_EQ(there, back) << bytes;
    device->release(a, bytes);
    device->release(b, bytes);
  }
}

TEST_F(CudaDeviceTest, ManySmallCopiesShareTheStagingMemory) {
  void* memory = device->allocate(4);
  for (int i = 0; i < 1000000; i += 997)
    device->copy_in(memory, &i, 4);
  int last = 0;
  device->copy_out(&last, memory, 4);
  EXPECT_EQ(last, 999991);
  device->release(memory, 4);
}

TEST_F(CudaDeviceTest, LaunchPacksPointersDimsAndScalars) {
  void* in = device->allocate(400);
  void* out = device->allocate(400);
  std::vector<float> values(100);
  std::iota(values.begin(), values.end(), 0.f);
  device->copy_in(in, values.data(), 400);
  const Axpb axpb(out, in, 100, 2, 1);
  device->launch(*artifact, program, axpb.block());
  EXPECT_EQ(read(out, 100)[99], 199.f);
  EXPECT_EQ(fake.launches, 1u);
  EXPECT_EQ(fake.early_launches, 0u) << "its text does not wait for the launch before it";
  // No elements: no launch, which the driver would refuse.
  const Axpb empty(out, in, 0, 2, 1);
  device->launch(*artifact, program, empty.block());
  EXPECT_EQ(fake.launches, 1u);
  device->release(in, 400);
  device->release(out, 400);
}

/// Programmatic dependent launch is asked for where the kernel itself waits for the one before it.
TEST_F(CudaDeviceTest, KernelsThatWaitAreLaunchedWhileTheOneBeforeRuns) {
  const auto waiting_text = [](const kernel::KernelProgram& p, const CudaTarget& target) {
    KernelText text = axpb_text(p, target);
    text.text += "// griddepcontrol.wait;\n"; // this driver reads none of it
    return text;
  };
  const auto other =
      make_cuda_device(0, {waiting_text, {{EGRET_FAKE_CUDA}, {EGRET_FAKE_CUDA}}, nullptr});
  const auto waiting = other->compile(program);
  void* in = other->allocate(400);
  void* out = other->allocate(400);
  const Axpb axpb(out, in, 100, 2, 1);
  other->launch(*waiting, program, axpb.block());
  other->synchronize();
  EXPECT_EQ(fake.launches, 1u);
  EXPECT_EQ(fake.early_launches, 1u);
  other->release(in, 400);
  other->release(out, 400);
}

TEST_F(CudaDeviceTest, ARecordedStepIsOneSubmissionAndOnlyWhatChangedIsPatched) {
  void* a = device->allocate(40);
  void* b = device->allocate(40);
  void* c = device->allocate(40);
  const std::vector<float> ones(10, 1.f);
  device->copy_in(a, ones.data(), 40);
  const Axpb first(b, a, 10, 2, 0), second(b, b, 10, 3, 1);
  const std::vector<Work> step = {work(first), work(second), copy(c, b, 40)};
  EXPECT_EQ(device->submit(step), 3);
  EXPECT_EQ(read(c, 10)[9], 7.f);
  EXPECT_EQ(fake.graphs_made, 0u);

  std::unique_ptr<Recording> recording;
  EXPECT_EQ(device->submit(step, &recording), 1);
  EXPECT_EQ(fake.graphs_made, 1u);
  EXPECT_EQ(device->submit(step, &recording), 1);
  EXPECT_EQ(fake.graphs_made, 1u);
  EXPECT_EQ(fake.graph_launches, 2u);
  EXPECT_EQ(fake.nodes_changed, 0u);

  // Another input, another scalar, another end of the copy, another size.
  void* d = device->allocate(80);
  const std::vector<float> twos(20, 2.f);
  device->copy_in(d, twos.data(), 80);
  const Axpb moved(b, d, 10, 2, 0), scaled(b, b, 10, 5, 1);
  const std::vector<Work> other = {work(moved), work(scaled), copy(a, b, 40)};
  EXPECT_EQ(device->submit(other, &recording), 1);
  EXPECT_EQ(fake.nodes_changed, 3u);
  EXPECT_EQ(read(a, 10)[0], 21.f);
  EXPECT_EQ(read(c, 10)[0], 7.f);
  EXPECT_EQ(fake.graphs_made, 1u);
  for (void* memory : {a, b, c, d})
    device->release(memory, 40);
}

// The driver makes tensor maps for a thread that has turned to the device only.
TEST_F(CudaDeviceTest, ARecordedStepMakesItsTensorMapsForTheDevice) {
  program.tensor_maps.push_back({0, Expr(0), {Expr(64)}, {Expr(1)}, {64}, 128});
  const auto with_map = device->compile(program);
  void* a = device->allocate(256);
  const Axpb axpb(a, a, 64, 2, 1);
  Work item = work(axpb);
  item.artifact = with_map.get();
  const std::vector<Work> step = {item};
  std::unique_ptr<Recording> recording;
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(device->submit(step, &recording), 1);
  EXPECT_GE(fake.tensor_maps, 2u);
  device->release(a, 256);
}

TEST_F(CudaDeviceTest, ARecordedStepFollowsSizes) {
  void* a = device->allocate(4000);
  void* b = device->allocate(4000);
  const std::vector<float> ones(1000, 1.f);
  device->copy_in(a, ones.data(), 4000);
  std::unique_ptr<Recording> recording;
  for (std::int64_t n : {300, 1000, 0, 5}) {
    const std::vector<float> zeros(1000, 0.f);
    device->copy_in(b, zeros.data(), 4000);
    const Axpb half(b, a, n, 1, 1), rest(b, b, n, 2, 0);
    const std::vector<Work> step = {work(half), work(rest)};
    // A step with nothing to do for a kernel cannot be a graph; the next one can again.
    EXPECT_EQ(device->submit(step, &recording), n == 0 ? 2 : 1);
    const auto values = read(b, 1000);
    EXPECT_EQ(std::count(values.begin(), values.end(), 4.f), n);
  }
  EXPECT_EQ(fake.graphs_made, 1u);
  device->release(a, 4000);
  device->release(b, 4000);
}

TEST_F(CudaDeviceTest, AFailedRecordingLeavesTheDeviceUsable) {
  void* a = device->allocate(40);
  const Axpb step_work(a, a, 10, 2, 0);
  const std::vector<Work> step = {work(step_work), work(step_work)};
  fake.failing = "cuLaunchKernelEx";
  fake.failure = 1;
  fake.failures_after = 1;
  std::unique_ptr<Recording> recording;
  EXPECT_THROW(device->submit(step, &recording), Error);
  EXPECT_EQ(recording, nullptr);
  fake.failing = nullptr;
  EXPECT_EQ(device->submit(step, &recording), 1);
  device->release(a, 40);
}

TEST_F(CudaDeviceTest, KernelsAreUnloadedWithTheirArtifacts) {
  EXPECT_EQ(fake.modules, 1u);
  artifact.reset();
  EXPECT_EQ(fake.modules, 0u);
}

TEST_F(CudaDeviceTest, ResidentKernelsGetNoMoreBlocksThanFit) {
  program.launch.resident = true;
  program.launch.blocks_per_core = 2;
  artifact = device->compile(program);
  static unsigned blocks;
  fake.launcher = [](const egret::testing::FakeLaunch& launch, void*) { blocks = launch.blocks; };
  void* a = device->allocate(4);
  const Axpb large(a, a, 1 << 20, 1, 0), small(a, a, 1000, 1, 0);
  device->launch(*artifact, program, large.block());
  EXPECT_EQ(blocks, 8u); // two for each of four multiprocessors
  device->launch(*artifact, program, small.block());
  EXPECT_EQ(blocks, 8u);
  const Axpb tiny(a, a, 200, 1, 0);
  device->launch(*artifact, program, tiny.block());
  EXPECT_EQ(blocks, 2u);
  device->release(a, 4);
}

} // namespace
} // namespace egret::backend::cuda
