// What a tree's bodies cost on a GPU: instructions of warps, requests of memory by how neighbours
// read, bytes through the L2 cache, and whether there are enough threads to wait with.
#include "loops/estimate.h"

#include "kernel/analysis.h"

#include <algorithm>
#include <cmath>

namespace egret::loops {

using kernel::Bind;
using kernel::StageKind;

namespace {

/// Round figures of present GPUs, in cycles of a multiprocessor and bytes; they rank trees of one
/// region.
constexpr double kClock = 1.5e9, kWarp = 32, kSchedulers = 4;
constexpr double kSector = 32, kSectorsACycle = 4;
constexpr double kL2Bytes = 48, kMemoryBytes = 20;
/// Cycles until a value comes, from far and from near, of loads that the compiler keeps in flight.
constexpr double kFar = 120, kNear = 25, kStep = 6;
/// 32-bit registers beside those of sums.
constexpr double kOther = 28, kMostRegisters = 230;

bool by_threads(Bind bind) {
  return bind == Bind::Lane || bind == Bind::Warp;
}

/// Blocks first, then each thread's turns: in each of them all threads run at once.
int place(const LoopAround& loop) {
  return loop.bind == Bind::Grid     ? 0
         : loop.bind == Bind::Serial ? 1
         : by_threads(loop.bind)     ? 2
                                     : 3;
}

} // namespace

double Estimator::gpu_body_seconds(int s, std::span<const LoopAround> loops,
                                   std::span<const NearAround> near, std::size_t shared) const {
  const kernel::Stage& stage = region_.stages[std::size_t(s)];
  const StageCost& cost = stages_[std::size_t(s)];
  double grid = 1, threads = 1, steps = 1, copies = 1, vector = 1, sums = 1, combined = 0;
  int vector_axis = -1, neighbours = -1;
  double across = 1; // threads side by side
  for (const LoopAround& loop : loops) {
    const bool reduced = kernel::contains(stage.over, loop.axis);
    switch (loop.bind) {
    case Bind::Grid:
      grid *= loop.trips;
      break;
    case Bind::Lane:
    case Bind::Warp:
      threads *= loop.trips;
      neighbours = loop.axis;
      across = loop.trips;
      if (reduced)
        combined += 2 * std::log2(std::max(2.0, loop.trips)) + (loop.trips > kWarp ? 60 : 0);
      break;
    case Bind::Unroll:
    case Bind::Vector:
    case Bind::Matrix:
      copies *= loop.trips;
      if (!reduced)
        sums *= loop.trips;
      if (loop.bind == Bind::Vector) {
        vector = loop.trips;
        vector_axis = loop.axis;
      }
      break;
    default:
      steps *= loop.trips;
    }
  }
  const double warps = std::ceil(threads / kWarp);
  // A thread's instructions, and requests for sectors of memory by a warp.
  double instructions = steps * (copies * std::max(1.0, cost.flops) + 3);
  double requests = 0, bytes_near = 0, wait = kStep;
  for (const Access& access : cost.accesses) {
    const auto copy = std::ranges::find_if(near, [&](const NearAround& n) {
      return n.operand == access.operand && access.operand >= 0 && !access.written;
    });
    double times = 1;
    bool hoisted = true;
    for (std::size_t l = loops.size(); l-- > 0;) {
      const LoopAround& loop = loops[l];
      if (loop.bind == Bind::Grid || by_threads(loop.bind))
        continue;
      const bool depends = access.stride[std::size_t(loop.axis)] != 0;
      if (loop.bind == Bind::Vector && depends && access.stride[std::size_t(loop.axis)] == 1)
        continue;
      hoisted = hoisted && (!depends || loop.bind != Bind::Serial);
      if (depends || (!hoisted && loop.bind == Bind::Serial && !access.written))
        times *= loop.trips;
    }
    const bool wide = vector_axis >= 0 && access.stride[std::size_t(vector_axis)] == 1;
    const double bytes = access.bytes * (wide ? vector : 1);
    double apart = 0; // bytes from one thread to its neighbour
    if (neighbours >= 0)
      apart = access.stride[std::size_t(neighbours)] * access.bytes *
              (neighbours == vector_axis ? vector : 1);
    const double side_by_side = std::min(kWarp, across);
    double sectors = std::max(1.0, bytes / kSector);
    if (copy == near.end()) {
      if (apart > 0)
        sectors = side_by_side * std::max(std::min(1.0, apart / kSector), bytes / kSector);
      sectors = std::max(1.0, sectors) * (kWarp / side_by_side);
      if (!access.written && !hoisted)
        wait = std::max(wait, kFar / std::clamp(copies, 1.0, 4.0));
    } else {
      wait = std::max(wait, kNear);
      double elements = 1, fills = 1; // of a block's copy
      for (std::size_t l = 0; l < loops.size(); ++l) {
        if (l >= copy->loops && access.stride[std::size_t(loops[l].axis)] != 0)
          elements *= loops[l].trips;
        if (l < copy->loops && loops[l].bind == Bind::Serial)
          fills *= loops[l].trips;
      }
      bytes_near += elements * access.bytes;
      const double turns = std::ceil(elements / threads) * fills;
      instructions += turns * 12 + fills * 40;
      requests += turns * 2;
    }
    instructions += times;
    requests += times * std::max(1.0, sectors / kSectorsACycle);
  }
  instructions += combined * sums;

  // What runs at a time.
  const double width = std::max(1.0, double(size_of(stage.acc_dtype)) / 4);
  const double registers = sums * width + std::min(copies, 32.0) + kOther;
  const double multiprocessors = std::max(1, target_.workers);
  const double slots = warps * kWarp;
  double resident = std::min({double(target_.blocks), double(target_.threads) / slots,
                              double(target_.registers) / (slots * registers),
                              double(target_.shared_bytes) / (bytes_near + 1024)});
  resident = std::max(1.0, std::floor(resident));
  const double rounds = std::ceil(grid / multiprocessors); // blocks of the busiest one
  const double waves = std::ceil(rounds / resident);
  double penalty = registers > kMostRegisters ? registers / kMostRegisters * 2 : 1;
  if (bytes_near > double(target_.block_shared_bytes))
    penalty *= 100;
  const double issue = rounds * warps * instructions / kSchedulers;
  const double asked = rounds * warps * requests;
  const double latency = waves * (steps * wait + instructions + combined + 300);
  const double used = std::min(grid, multiprocessors);

  std::vector<LoopAround> order(loops.begin(), loops.end());
  std::ranges::stable_sort(order, {}, place);
  const double cache = 0.5 * double(target_.shared_bytes) / resident;
  const double from_l2 = traffic(cost, order, shared, cache) / kL2Bytes / used;
  const double from_memory =
      traffic(cost, order, shared, 0.5 * double(target_.l2_bytes)) / kMemoryBytes / multiprocessors;
  const double slowest = std::max({issue, asked, latency, from_l2, from_memory});
  return penalty * (slowest + 0.2 * (issue + asked + latency + from_l2 + from_memory - slowest)) /
         kClock;
}

} // namespace egret::loops
