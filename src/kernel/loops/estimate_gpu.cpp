// What a tree's bodies cost on a GPU: instructions of warps, requests of memory by how neighbours
// read, bytes through the L2 cache, and whether there are enough threads to wait with.
#include "kernel/loops/estimate.h"

#include "kernel/analysis.h"

#include <algorithm>
#include <cmath>

namespace egret::kernel::loops {

namespace {

/// Round figures of present GPUs, in cycles of a multiprocessor and bytes; they rank trees of one
/// region.
constexpr double kGpuClock = 1.5e9, kWarpThreads = 32, kSchedulers = 4;
constexpr double kSector = 32, kSectorsACycle = 4;
constexpr double kGpuL2Bytes = 48, kGpuMemoryBytes = 20;
/// Cycles until a value comes, from far (measured: bench/results/2026-11-22-loops.md) and from
/// near.
constexpr double kFar = 600, kNear = 25, kStep = 6;
/// Loads of a thread that are under way together to fill a copy.
constexpr double kLoadsTogether = 16;
/// Cycles of a barrier of all blocks; bytes of shared memory that a multiprocessor reads a cycle.
constexpr double kGridBarrier = 2000, kSharedBytes = 128;
/// Matrix loops: bytes of copies near of several iterations, and of how many; cycles from one
/// iteration to the next, with and without copies.
constexpr double kRingBytes = 112 << 10, kRingStages = 4, kTurn = 90, kTurnFar = 500;
/// A scheduler's cycles for a product of a warp, with what is around it, and until a warp's next
/// one. Measured: bench/results/2026-11-22-loops.md.
constexpr double kNextProduct = 14;
/// 32-bit registers beside those of sums.
constexpr double kOther = 28, kThreadRegisters = 230;

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

/// Cycles until the parts that blocks have made of sums are one: a barrier, and for each result the
/// parts one after the other.
double combining(const Stage& stage, std::span<const LoopAround> loops, double multiprocessors) {
  double parts = 1, results = 1;
  for (const LoopAround& loop : loops)
    if (contains(stage.over, loop.axis))
      parts *= loop.bind == Bind::Grid ? loop.trips : 1;
    else
      results *= loop.trips;
  if (parts == 1)
    return 0;
  const double bytes = 2 * parts * results * double(size_of(stage.acc_dtype));
  // Eight threads share the parts of a result, a few loads at a time.
  return kGridBarrier + kFar + std::ceil(parts / 8) * 150 + bytes / (kGpuL2Bytes * multiprocessors);
}

/// Whether the factors of a product are what is read, and nothing is computed of it.
bool multiplies_loads(const Stage& stage) {
  const BodyValue& product = stage.body[std::size_t(stage.yields[0])];
  return std::ranges::all_of(product.args, [&](int factor) {
    const BodyValue& made = stage.body[std::size_t(through_casts(stage, factor))];
    return made.kind == BodyValue::Kind::Load &&
           stage.loads[std::size_t(made.load)].source == Source::Operand;
  });
}

/// Threads of a warp along one loop, and the bytes between neighbours.
struct Along {
  double threads = 1, stride = 0;
};

/// Sectors that a warp asks for, each thread for `bytes` at a time.
double sectors_of(std::vector<Along> warp, double bytes) {
  std::ranges::sort(warp, {}, &Along::stride);
  double pieces = 1, span = bytes; // side by side
  for (const Along& level : warp) {
    if (level.stride == 0)
      continue;
    if (level.stride <= std::max(span, kSector))
      span = std::max(span, level.stride * (level.threads - 1) + bytes);
    else
      pieces *= level.threads;
  }
  return pieces * std::max(1.0, span / kSector);
}

} // namespace

double Estimator::gpu_matrix_seconds(int s, std::span<const LoopAround> loops,
                                     std::span<const NearAround> near, std::size_t shared) const {
  const Stage& stage = region_.stages[std::size_t(s)];
  const StageCost& cost = stages_[std::size_t(s)];
  double grid = 1, warps = 1, steps = 1, tiles = 1, held = 1;
  for (const LoopAround& loop : loops)
    if (loop.bind == Bind::Grid)
      grid *= loop.trips;
    else if (by_threads(loop.bind))
      warps *= loop.trips;
    else if (loop.bind == Bind::Unroll || loop.bind == Bind::Vector) {
      tiles *= loop.trips;
      held *= contains(stage.over, loop.axis) ? 1 : loop.trips;
    } else if (loop.bind == Bind::Serial)
      steps *= loop.trips;
  // Fragments of the factors: by whole matrices from copies, by pairs of elements else.
  double instructions = tiles + 12, shared_bytes = 0, copied = 0, l2_bytes = 0, registers = kOther;
  bool far = false;
  const bool whole = multiplies_loads(stage);
  for (const Access& access : cost.accesses) {
    if (access.operand < 0 || access.written)
      continue;
    const auto copy = std::ranges::find_if(
        near, [&](const NearAround& n) { return n.operand == access.operand; });
    double fragments = 1, elements = 1, of_block = 1, unit = 1;
    for (std::size_t l = 0; l < loops.size(); ++l) {
      const LoopAround& loop = loops[l];
      if (access.stride[std::size_t(loop.axis)] == 0)
        continue;
      fragments *= loop.bind == Bind::Unroll ? loop.trips : 1;
      unit *= loop.bind == Bind::Matrix ? loop.trips : 1;
      of_block *= loop.bind == Bind::Grid ? 1 : loop.trips;
      if (copy != near.end() && l >= copy->loops)
        elements *= loop.trips;
    }
    const double words = unit / kWarpThreads / 2; // of a thread
    registers += fragments * words;
    l2_bytes += grid * of_block * access.bytes;
    if (copy == near.end()) {
      far = true;
      instructions += fragments * words * 10;
      l2_bytes += grid * of_block * access.bytes * (warps > 1 ? 0.5 : 0);
      continue;
    }
    instructions += fragments * (whole ? 2 : words * (6 + 2 * cost.flops));
    shared_bytes += warps * fragments * unit * access.bytes + elements * access.bytes;
    copied += elements * access.bytes;
    instructions += std::ceil(elements * access.bytes / 16 / (warps * kWarpThreads)) * 10;
  }
  const double stages =
      std::clamp(std::floor(kRingBytes / std::max(copied, 1.0)), 2.0, kRingStages);
  registers += 4 * held;
  const double multiprocessors = std::max(1, target_.workers);
  double resident =
      std::min({double(target_.blocks), double(target_.threads) / (warps * kWarpThreads),
                double(target_.registers) / (warps * kWarpThreads * registers),
                double(target_.shared_bytes) / (stages * copied + 1024)});
  resident = std::max(1.0, std::floor(resident));
  double penalty = registers > kThreadRegisters ? registers / kThreadRegisters * 2 : 1;
  if (stages * copied > double(target_.block_shared_bytes))
    penalty *= 100;
  const double rounds = std::ceil(grid / multiprocessors), waves = std::ceil(rounds / resident);
  const MatrixUnit* unit = target_.unit(FragmentLayout::SubgroupFragments);
  const double product = unit ? unit->cycles : 0; // none without a unit
  const double busy = std::min(kSchedulers, warps * std::min(rounds, resident));
  const double multiplied = rounds * warps * steps * tiles * product / busy;
  const double issue = rounds * warps * steps * instructions / busy;
  const double asked = rounds * steps * shared_bytes / kSharedBytes;
  const double latency = waves * (steps * ((far ? kTurnFar : kTurn) + tiles * kNextProduct) + 1500);
  const double used = std::min(grid, multiprocessors);
  const double from_l2 = l2_bytes / kGpuL2Bytes / used;
  std::vector<LoopAround> order(loops.begin(), loops.end());
  std::ranges::stable_sort(order, {}, place);
  const double from_memory =
      traffic(cost, order, shared, 0.5 * double(target_.l2_bytes), order.size()) / kGpuMemoryBytes /
      multiprocessors;
  const double slowest = std::max({multiplied, issue, asked, latency, from_l2, from_memory});
  return (penalty * (slowest + 0.2 * (multiplied + issue + asked + latency + from_l2 + from_memory -
                                      slowest)) +
          combining(stage, loops, multiprocessors)) /
         kGpuClock;
}

double Estimator::gpu_body_seconds(int s, std::span<const LoopAround> loops,
                                   std::span<const NearAround> near, std::size_t shared) const {
  if (std::ranges::any_of(loops, [](const LoopAround& l) { return l.bind == Bind::Matrix; }))
    return gpu_matrix_seconds(s, loops, near, shared);
  const Stage& stage = region_.stages[std::size_t(s)];
  const StageCost& cost = stages_[std::size_t(s)];
  double grid = 1, threads = 1, steps = 1, copies = 1, vector = 1, sums = 1, combined = 0;
  int vector_axis = -1;
  for (const LoopAround& loop : loops) {
    const bool reduced = contains(stage.over, loop.axis);
    switch (loop.bind) {
    case Bind::Grid:
      grid *= loop.trips;
      break;
    case Bind::Lane:
    case Bind::Warp:
      threads *= loop.trips;
      if (reduced)
        combined += 2 * std::log2(std::max(2.0, loop.trips)) + (loop.trips > kWarpThreads ? 60 : 0);
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
  const double warps = std::ceil(threads / kWarpThreads);
  // A thread's instructions, and requests for sectors of memory by a warp.
  double instructions = steps * (copies * std::max(1.0, cost.flops) + 3);
  double requests = 0, bytes_near = 0, wait = kStep, filling = 0;
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
    std::vector<Along> warp;
    double left = kWarpThreads;
    for (std::size_t l = loops.size(); l-- > 0 && left > 1;)
      if (by_threads(loops[l].bind)) {
        const int axis = loops[l].axis;
        warp.push_back(
            {std::min(left, loops[l].trips),
             access.stride[std::size_t(axis)] * access.bytes * (axis == vector_axis ? vector : 1)});
        left = std::floor(left / loops[l].trips);
      }
    double sectors = std::max(1.0, bytes / kSector);
    if (access.operand < 0 && !access.leaves && shared > 0) { // a result that stays in the block
      wait = std::max(wait, kNear);
    } else if (copy == near.end()) {
      sectors = sectors_of(std::move(warp), bytes);
      if (!access.written && !hoisted)
        wait = std::max(wait, steps == 1 ? kFar : kFar / std::clamp(copies / vector, 1.0, 8.0));
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
      filling += fills * std::ceil(std::ceil(elements / threads) / kLoadsTogether) * kFar;
    }
    instructions += times;
    requests += times * std::max(1.0, sectors / kSectorsACycle);
  }
  instructions += combined * sums;

  // What runs at a time.
  const double width = std::max(1.0, double(size_of(stage.acc_dtype)) / 4);
  const double registers = sums * width + std::min(copies, 32.0) + kOther;
  const double multiprocessors = std::max(1, target_.workers);
  const double slots = warps * kWarpThreads;
  double resident = std::min({double(target_.blocks), double(target_.threads) / slots,
                              double(target_.registers) / (slots * registers),
                              double(target_.shared_bytes) / (bytes_near + 1024)});
  resident = std::max(1.0, std::floor(resident));
  const double rounds = std::ceil(grid / multiprocessors); // blocks of the busiest one
  const double waves = std::ceil(rounds / resident);
  double penalty = registers > kThreadRegisters ? registers / kThreadRegisters * 2 : 1;
  if (bytes_near > double(target_.block_shared_bytes))
    penalty *= 100;
  const double issue = rounds * warps * instructions / kSchedulers;
  const double asked = rounds * warps * requests;
  const double latency = waves * (steps * wait + filling + instructions + combined + 300);
  const double used = std::min(grid, multiprocessors);

  std::vector<LoopAround> order(loops.begin(), loops.end());
  std::ranges::stable_sort(order, {}, place);
  // The threads of a map read what lies side by side at once, whatever it is beside the cache.
  const auto at_once = std::ranges::find_if(
      order, [&](const LoopAround& l) { return stage.kind == StageKind::Map && place(l) > 1; });
  const auto together = std::size_t(at_once - order.begin());
  const double cache = 0.5 * double(target_.shared_bytes) / resident;
  const double from_l2 = traffic(cost, order, shared, cache, together) / kGpuL2Bytes / used;
  const double from_memory =
      traffic(cost, order, shared, 0.5 * double(target_.l2_bytes), together) / kGpuMemoryBytes /
      multiprocessors;
  const double slowest = std::max({issue, asked, latency, from_l2, from_memory});
  return (penalty * (slowest + 0.2 * (issue + asked + latency + from_l2 + from_memory - slowest)) +
          combining(stage, loops, multiprocessors)) /
         kGpuClock;
}

} // namespace egret::kernel::loops
