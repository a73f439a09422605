#include "kernel/gpu_fma_time.h"

#include "support/checked.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace egret::kernel {

namespace {

// Of a multiprocessor, in cycles of about 1.7 GHz.
constexpr double kSchedulers = 4;
/// A load from memory, and one from the second cache, as copies and sums of shares wait for.
constexpr double kMemoryLatency = 900, kCacheLatency = 600;
/// Bytes that arrive from the second cache, while all multiprocessors load.
constexpr double kBytes = 24;
/// Of shared memory for a read of 16 bytes by each lane, most of which are the same; and the share
/// of its cycles that hold up the multiplications.
constexpr double kReadCycles = 3, kHeldUp = 0.35;
/// Barrier and bookkeeping of a step of the ring.
constexpr double kStep = 80, kStepInstructions = 50;
/// Instructions of an asynchronous copy, and of an element that goes through registers.
constexpr double kCopy = 4, kThroughRegisters = 12;
/// Until the last block of a tile knows that it is: a fence, an atomic operation and what it reads.
constexpr double kMeeting = 2500;
/// A share of the schedulers' cycles that so many warps of each cannot use.
double used_by(double warps) {
  return warps / (warps + 0.35);
}

/// What a block does in one step of the ring.
struct Step {
  double instructions = 0; ///< of a warp
  double shared = 0;       ///< cycles of shared memory, of a warp
  double bytes = 0;
  bool is_async = true;
};

Step step_of(const FmaProblem& p, const GpuTiles& t) {
  const double rows = double(t.bm) / t.warps_m / 4, vectors = double(t.bn) / t.warps_n / 32,
               depth = double(t.bk) / t.warps_k,
               together = int(rows) % 4 == 0   ? 4
                          : int(rows) % 2 == 0 ? 2
                                               : 1;
  Step s;
  const double reads = rows / together + vectors;
  s.instructions = depth * (rows * vectors * 4 + reads) + kStepInstructions;
  s.shared = depth * reads * kReadCycles;
  for (const bool right : {false, true}) {
    const int lanes = right ? p.right_copy : p.left_copy;
    const double chunks =
        std::ceil(double(right ? t.bn : t.bm) * t.bk / std::max(lanes, 1) / t.threads());
    s.instructions += chunks * (lanes > 0 ? kCopy : kThroughRegisters);
    s.shared += chunks * 4;
    s.is_async = s.is_async && lanes > 0;
  }
  s.bytes = double(t.bm + t.bn) * t.bk * 4;
  return s;
}

/// Blocks that a multiprocessor has at a time; 0: one block's threads lack registers.
double residents(const GpuTiles& t, const Target& target) {
  const double sums = double(t.bm) * t.bn * t.warps_k / t.threads(),
               registers = std::min(255.0, 56 + 1.4 * sums),
               shared = double(t.stages) * (t.bm + t.bn + 16) * (t.bk + 8) * 4 +
                        double(t.warps_k / 2) * t.bm * t.bn * 4;
  return std::floor(std::min({double(target.threads) / t.threads(),
                              double(target.registers) / (registers * t.threads()),
                              double(target.shared_bytes) / shared, 16.0}));
}

} // namespace

double fma_cycles(const FmaProblem& p, const GpuTiles& t, const Target& target) {
  const Step s = step_of(p, t);
  const double warps = t.threads() / 32.0, cores = target.workers,
               tiles = double(ceil_quotient(p.rows, t.bm)) *
                       double(ceil_quotient(p.columns, t.bn)) * double(p.batch),
               steps = std::ceil(std::ceil(double(p.depth) / t.bk) / double(t.split)),
               ahead = s.is_async ? t.stages - 1 : 1;
  const auto wave = [&](double blocks) { // so many on a multiprocessor
    const double each = std::max(1.0, warps / kSchedulers),
                 all = std::max(1.0, blocks * warps / kSchedulers);
    const double shared = s.shared * warps * blocks;
    const double step = std::max(
        {s.instructions * all / used_by(all) + kHeldUp * shared, shared, s.bytes * blocks / kBytes,
         s.instructions * each / used_by(each) + kStep, kMemoryLatency / ahead});
    return steps * step + kMemoryLatency + kCacheLatency;
  };
  const double most = residents(t, target);
  if (most < 1)
    return std::numeric_limits<double>::infinity();
  const double blocks = tiles * double(t.split), whole = std::floor(blocks / (cores * most)),
               rest = std::ceil((blocks - whole * cores * most) / cores);
  double cycles = whole * wave(most) + (rest > 0 ? wave(rest) : 0);
  if (t.split > 1) {
    // Shares are stored by all blocks, and those of a tile are read by its last one.
    const double bytes = double(t.bm) * t.bn * 4, last = double(t.split) * bytes,
                 all = 2 * blocks / cores * bytes;
    cycles += kMeeting + std::max({last / kBytes, all / kBytes,
                                   kCacheLatency / 4 * double(t.split) / t.warps_k});
  }
  return cycles + kCacheLatency * std::log2(double(t.warps_k)) / 8;
}

FmaChoice with_best_split(const FmaProblem& p, GpuTiles tiles, const Target& target) {
  constexpr double kClearly = 0.95;
  constexpr std::int64_t kMost = 256;
  tiles.split = 1;
  FmaChoice best{tiles, fma_cycles(p, tiles, target)};
  if (!p.has_shares)
    return best;
  const std::int64_t all = ceil_quotient(p.rows, tiles.bm) * ceil_quotient(p.columns, tiles.bn) *
                           p.batch,
                     parts = ceil_quotient(p.depth, tiles.bk);
  std::set<std::int64_t> splits{2, 3, 4};
  for (const std::int64_t blocks : {1, 2, 3, 4, 6, 8}) // on each multiprocessor
    splits.insert(blocks * target.workers / all);
  for (const std::int64_t wanted : splits) {
    if (wanted < 2 || wanted > kMost || parts / wanted < 2)
      continue;
    tiles.split = ceil_quotient(parts, ceil_quotient(parts, wanted)); // none without work
    const double cycles = fma_cycles(p, tiles, target);
    if (cycles < (best.tiles.split == 1 ? kClearly : 1.0) * best.cycles)
      best = {tiles, cycles};
  }
  return best;
}

std::vector<FmaChoice> fma_choices(const FmaProblem& p, const Target& target) {
  constexpr std::size_t kMost = 12;
  constexpr int kMostCode = 1024; // products that stand one after the other in the code
  std::vector<FmaChoice> choices;
  GpuTiles t;
  t.unit = GpuUnit::Fma;
  for (const int rows : {2, 4, 8})
    for (const int vectors : {1, 2, 3})
      for (const auto& [warps_m, warps_n] :
           {std::pair{1, 1}, {1, 2}, {2, 1}, {2, 2}, {4, 1}, {1, 4}, {4, 2}, {2, 4}, {3, 1}})
        for (const int warps_k : {1, 2, 4, 8})
          for (const auto& [bk, stages] :
               {std::pair{8, 4}, {16, 3}, {16, 4}, {32, 3}, {32, 4}, {64, 3}}) {
            t.bm = 4 * rows * warps_m;
            t.bn = 32 * vectors * warps_n;
            t.bk = bk;
            t.stages = stages;
            t.warps_m = warps_m;
            t.warps_n = warps_n;
            t.warps_k = warps_k;
            // A thread has a few steps of each piece, and sums enough to hide what it waits for.
            if (bk / warps_k < 4 || t.threads() > 512 || rows * vectors > 16 || t.bm > 128 ||
                t.bn > 128 || rows * vectors < 4 || rows * vectors * 4 * bk / warps_k > kMostCode)
              continue;
            if (const FmaChoice c = with_best_split(p, t, target); std::isfinite(c.cycles))
              choices.push_back(c);
          }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const FmaChoice& a, const FmaChoice& b) { return a.cycles < b.cycles; });
  if (choices.size() > kMost)
    choices.resize(kMost);
  return choices;
}

} // namespace egret::kernel
