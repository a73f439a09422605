#include "backend/cpu/ceilings.h"

#include "kernel/builder.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace egret::backend::cpu {
namespace {

using kernel::Bind;
using kernel::CachePolicy;
using kernel::KernelProgram;
using kernel::ProgramBuilder;
using kernel::ValueId;
using kernel::VarId;

// A block of device memory.
class Block {
public:
  Block(Device& device, std::int64_t bytes)
      : device_(device), bytes_(static_cast<std::size_t>(bytes)), memory_(device.allocate(bytes_)) {
  }
  ~Block() { device_.release(memory_, bytes_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  float* floats() const { return static_cast<float*>(memory_); }

private:
  Device& device_;
  std::size_t bytes_;
  void* memory_;
};

// Amounts a second: `amount` is what one launch does. Launches until the figures have settled, for
// at least `least` seconds.
Ceiling measure(Device& device, const KernelProgram& program, std::vector<void*> pointers,
                int workers, double amount, double least) {
  auto artifact = device.compile(program);
  kernel::ArgBlock block{pointers.data(), nullptr, nullptr, nullptr, nullptr};
  using Clock = std::chrono::steady_clock;
  device.launch(*artifact, program, block, workers);
  std::vector<double> rates;
  for (auto start = Clock::now();
       rates.size() < 7 || Clock::now() - start < std::chrono::duration<double>(least);) {
    auto before = Clock::now();
    device.launch(*artifact, program, block, workers);
    rates.push_back(amount / std::chrono::duration<double>(Clock::now() - before).count());
  }
  std::sort(rates.begin(), rates.end());
  return {rates.back(), rates[rates.size() / 2]};
}

int workers_of(const Device& device, int asked) {
  return asked > 0 ? std::min(asked, device.target().workers) : device.target().workers;
}

int lanes_of_f32(const Device& device) {
  return std::max(1, device.target().vector_bytes / 4);
}

constexpr double kLeastSeconds = 0.2;

} // namespace

Ceiling peak_fma_f32(Device& device, int workers) {
  workers = workers_of(device, workers);
  const kernel::Target& target = device.target();
  int lanes = lanes_of_f32(device);
  // Enough independent chains to hide the latency, and two registers left for the factors.
  int chains = target.vector_registers - 8;
  constexpr std::int64_t kRounds = 1 << 15;
  ProgramBuilder b("peak_fma_f32");
  int out = b.argument("out", DType::F32, workers * lanes, 64, true);
  b.loop(0, workers, 1, workers, Bind::Core, [&](const Expr& worker) {
    std::vector<VarId> sums;
    for (int i = 0; i < chains; ++i) {
      sums.push_back(b.variable({DType::F32, lanes}));
      b.set(sums.back(), b.constant(Scalar::of(DType::F32, static_cast<double>(i)), lanes));
    }
    ValueId factor = b.constant(Scalar::of(DType::F32, 0.5), lanes);
    ValueId summand = b.constant(Scalar::of(DType::F32, 1.0), lanes);
    b.loop(0, kRounds, 1, kRounds, Bind::Serial, [&](const Expr&) {
      for (VarId sum : sums)
        b.set(sum, b.fma(b.read(sum), factor, summand));
    });
    ValueId total = b.read(sums[0]);
    for (int i = 1; i < chains; ++i)
      total = b.apply(Op::Add, DType::F32, {total, b.read(sums[static_cast<std::size_t>(i)])});
    b.store(out, worker * lanes + (lanes > 1 ? kernel::lane_variable(lanes) : Expr(0)), total);
  });
  KernelProgram program = b.finish(workers);
  Block result(device, workers * lanes * 4);
  double flops = 2.0 * static_cast<double>(kRounds) * chains * lanes * workers;
  return measure(device, program, {result.floats()}, workers, flops, kLeastSeconds);
}

Ceiling copy_bandwidth(Device& device, std::int64_t bytes, bool streaming, int workers) {
  workers = workers_of(device, workers);
  int lanes = lanes_of_f32(device);
  std::int64_t step = 4 * lanes;
  std::int64_t n = std::max<std::int64_t>(1, bytes / (4 * step)) * step;
  ProgramBuilder b("copy");
  int from = b.argument("from", DType::F32, n, 64, false);
  int to = b.argument("to", DType::F32, n, 64, true);
  Expr lane = lanes > 1 ? kernel::lane_variable(lanes) : Expr(0);
  b.loop(0, n, step, n, Bind::Core, [&](const Expr& i) {
    for (int v = 0; v < 4; ++v) {
      Expr at = i + v * lanes + lane;
      b.store(to, at, b.load(from, at, lanes), {},
              streaming ? CachePolicy::Streaming : CachePolicy::Default);
    }
  });
  KernelProgram program = b.finish(workers);
  Block source(device, n * 4), target(device, n * 4);
  std::fill_n(source.floats(), n, 1.0f);
  return measure(device, program, {source.floats(), target.floats()}, workers,
                 8.0 * static_cast<double>(n), kLeastSeconds);
}

Ceiling read_bandwidth(Device& device, std::int64_t bytes, int workers) {
  workers = workers_of(device, workers);
  int lanes = lanes_of_f32(device);
  constexpr int kSums = 8;
  // Pieces small enough to be shared out evenly, large enough for a sum of each to cost nothing.
  std::int64_t step = kSums * lanes, piece = step * 64;
  std::int64_t pieces = std::max<std::int64_t>(1, bytes / (4 * piece));
  ProgramBuilder b("read");
  int from = b.argument("from", DType::F32, pieces * piece, 64, false);
  int to = b.argument("to", DType::F32, pieces * lanes, 64, true);
  Expr lane = lanes > 1 ? kernel::lane_variable(lanes) : Expr(0);
  b.loop(0, pieces, 1, pieces, Bind::Core, [&](const Expr& p) {
    std::vector<VarId> sums;
    for (int i = 0; i < kSums; ++i) {
      sums.push_back(b.variable({DType::F32, lanes}));
      b.set(sums.back(), b.constant(Scalar::of(DType::F32, 0.0), lanes));
    }
    b.loop(0, piece, step, piece, Bind::Serial, [&](const Expr& i) {
      for (int v = 0; v < kSums; ++v) {
        VarId sum = sums[static_cast<std::size_t>(v)];
        b.set(sum, b.apply(Op::Add, DType::F32,
                           {b.read(sum), b.load(from, p * piece + i + v * lanes + lane, lanes)}));
      }
    });
    ValueId total = b.read(sums[0]);
    for (int i = 1; i < kSums; ++i)
      total = b.apply(Op::Add, DType::F32, {total, b.read(sums[static_cast<std::size_t>(i)])});
    b.store(to, p * lanes + lane, total);
  });
  KernelProgram program = b.finish(workers);
  Block source(device, pieces * piece * 4), sums(device, pieces * lanes * 4);
  std::fill_n(source.floats(), pieces * piece, 1.0f);
  return measure(device, program, {source.floats(), sums.floats()}, workers,
                 4.0 * static_cast<double>(pieces * piece), kLeastSeconds);
}

} // namespace egret::backend::cpu
