// The device itself, with kernels written by hand.
#include "gpu/gpu.h"
#include "support/cuda_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace egret::backend::cuda {
namespace {

using egret::testing::axpb_program;
using egret::testing::axpb_text;
using egret::testing::error_of;

double seconds_of(auto&& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class GpuDevice : public ::testing::Test {
protected:
  GpuDevice() : device(make_cuda_device(0, {axpb_text})), program(axpb_program()) {
    artifact = device->compile(program);
  }
  struct Axpb {
    void* pointers[2];
    std::int64_t n;
    std::uint64_t scalars[2] = {};
    Axpb(void* out, void* in, std::int64_t size, float a, float b) : pointers{in, out}, n(size) {
      std::memcpy(&scalars[0], &a, sizeof a);
      std::memcpy(&scalars[1], &b, sizeof b);
    }
  };
  Work work(const Axpb& axpb) const {
    Work w;
    w.artifact = artifact.get();
    w.program = &program;
    w.block = {axpb.pointers, &axpb.n, axpb.scalars, nullptr, nullptr};
    return w;
  }
  std::vector<float> read(const void* memory, std::size_t count) {
    std::vector<float> values(count);
    device->copy_out(values.data(), memory, count * sizeof(float));
    return values;
  }
  std::unique_ptr<Device> device;
  kernel::KernelProgram program;
  std::shared_ptr<const Artifact> artifact;
};

TEST_F(GpuDevice, TellsItsTarget) {
  const kernel::Target& t = device->target();
  EXPECT_GE(t.architecture, 80);
  EXPECT_GE(t.workers, 4);
  EXPECT_GE(t.block_shared_bytes, 99 << 10);
  EXPECT_GT(t.memory_bytes, std::int64_t{1} << 30);
  const MemoryState memory = device->memory();
  EXPECT_GT(memory.free, 0u);
  EXPECT_LE(memory.free, memory.total);
}

TEST_F(GpuDevice, CopiesOfAnySizeArriveWhole) {
  for (std::size_t bytes : {std::size_t{1}, std::size_t{4099}, (std::size_t{4} << 20) + 3,
                            (std::size_t{300} << 20) + 5}) {
    std::vector<unsigned> there(bytes / 4 + 1), back(bytes / 4 + 1);
    for (std::size_t i = 0; i < there.size(); ++i)
      there[i] = static_cast<unsigned>(i * 2654435761u);
    void* a = device->allocate(bytes);
    void* b = device->allocate(bytes);
    device->copy_in(a, there.data(), bytes);
    device->copy(b, a, bytes);
    device->copy_out(back.data(), b, bytes);
    EXPECT_EQ(std::memcmp(there.data(), back.data(), bytes), 0) << bytes;
    device->release(a, bytes);
    device->release(b, bytes);
  }
}

TEST_F(GpuDevice, StepsRecordedAndNotGiveTheSame) {
  constexpr std::int64_t kMost = 100000;
  void* a = device->allocate(kMost * 4);
  void* b = device->allocate(kMost * 4);
  std::unique_ptr<Recording> recording;
  for (std::int64_t n : {std::int64_t{1000}, kMost, std::int64_t{0}, std::int64_t{77}, kMost})
    for (float factor : {2.f, 3.f}) {
      const std::vector<float> ones(kMost, 1.f);
      device->copy_in(a, ones.data(), kMost * 4);
      device->copy_in(b, ones.data(), kMost * 4);
      const Axpb first(b, a, n, factor, 1), second(b, b, n, 1, 10);
      Work copy;
      copy.to = a;
      copy.from = b;
      copy.bytes = static_cast<std::size_t>(n) * 4;
      const std::vector<Work> step = {work(first), work(second), copy};
      EXPECT_EQ(device->submit(step, &recording), n == 0 ? 3 : 1);
      const auto values = read(a, kMost);
      EXPECT_EQ(std::count(values.begin(), values.end(), factor + 11), n) << n;
      EXPECT_EQ(std::count(values.begin(), values.end(), 1.f), kMost - n) << n;
    }
  device->release(a, kMost * 4);
  device->release(b, kMost * 4);
}

TEST_F(GpuDevice, ManyThreadsUseIt) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      constexpr std::int64_t kN = 5000;
      void* memory = device->allocate(kN * 4);
      for (int round = 0; round < 20; ++round) {
        std::vector<float> values(kN, static_cast<float>(round));
        device->copy_in(memory, values.data(), kN * 4);
        const Axpb axpb(memory, memory, kN, 2, static_cast<float>(t));
        device->launch(*artifact, program, work(axpb).block);
        device->copy_out(values.data(), memory, kN * 4);
        EXPECT_EQ(values[kN - 1], static_cast<float>(2 * round + t));
      }
      device->release(memory, kN * 4);
    });
}

TEST_F(GpuDevice, MoreMemoryThanThereIsIsAnErrorAndNothingElse) {
  const std::size_t too_much = std::size_t{1} << 44;
  const std::string said = error_of(ErrorKind::Memory, [&] { device->allocate(too_much); });
  EXPECT_NE(said.find("17592186044416 bytes cannot be had"), std::string::npos) << said;
  void* memory = device->allocate(64);
  device->release(memory, 64);
}

TEST_F(GpuDevice, AllMemoryIsFoundAgainAfterItWasFragmented) {
  const std::size_t free = device->memory().free;
  const std::size_t piece = free / 100;
  std::vector<void*> held;
  for (int i = 0; i < 60; ++i)
    held.push_back(device->allocate(piece));
  for (void* memory : held)
    device->release(memory, piece);
  void* large = device->allocate(piece * 80);
  device->release(large, piece * 80);
}

TEST_F(GpuDevice, TellsWhatItCosts) {
  void* a = device->allocate(std::size_t{1} << 30);
  void* b = device->allocate(std::size_t{1} << 30);
  std::vector<char> host(std::size_t{256} << 20, 1);
  auto timed = [&](const char* what, double work, const char* unit, auto&& run) {
    run();
    device->synchronize();
    double best = 1e9;
    for (int i = 0; i < 5; ++i)
      best = std::min(best, seconds_of([&] {
                        run();
                        device->synchronize();
                      }));
    std::printf("  %-44s %10.2f us  %8.2f %s\n", what, best * 1e6, work / best, unit);
  };
  timed("copy to the device, 256 MiB", 0.268435456, "GB/s",
        [&] { device->copy_in(a, host.data(), host.size()); });
  timed("copy from the device, 256 MiB", 0.268435456, "GB/s",
        [&] { device->copy_out(host.data(), a, host.size()); });
  timed("copy within the device, 1 GiB", 2 * 1.073741824e-3, "TB/s",
        [&] { device->copy(b, a, std::size_t{1} << 30); });
  const Axpb large(b, a, std::int64_t{1} << 28, 2, 1), small(b, a, 100, 2, 1);
  timed("axpb of 2^28 f32", 2 * 1.073741824e-3, "TB/s",
        [&] { device->launch(*artifact, program, work(large).block); });
  std::vector<Work> step(200, work(small));
  timed("200 small launches", 200e-6, "M/s", [&] { device->submit(step); });
  std::unique_ptr<Recording> recording;
  timed("the same recorded", 200e-6, "M/s", [&] { device->submit(step, &recording); });
  const Axpb other(b, a, 100, 3, 1);
  std::vector<Work> changed(200, work(other));
  bool turn = false;
  timed("the same with every argument changed", 200e-6, "M/s", [&] {
    turn = !turn;
    device->submit(turn ? changed : step, &recording);
  });
  float last = 0;
  timed("4 bytes there and back", 1e-6, "M/s", [&] {
    device->copy_in(a, &last, 4);
    device->copy_out(&last, a, 4);
  });
  device->release(a, std::size_t{1} << 30);
  device->release(b, std::size_t{1} << 30);
}

} // namespace
} // namespace egret::backend::cuda
