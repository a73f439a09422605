#include "kernel/gpu_contraction_tiles.h"

#include "kernel/contraction_layouts.h"
#include "kernel/emit.h"
#include "kernel/gpu_contraction_side.h"
#include "kernel/gpu_fma_time.h"
#include "kernel/gpu_wgmma_side.h"
#include "support/checked.h"
#include "support/fail.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

namespace egret::kernel {

namespace {

/// Shared memory that a block of every machine since 8.0 may have.
constexpr std::int64_t kSharedBytes = 99 << 10;
/// Of a tile's depth.
constexpr std::int64_t kMostShares = 256;
/// Of the time without, what stream-K may take to be worth a try.
constexpr double kWorthStreaming = 0.97;
/// Rows of results that each warp collects, when staged, and their bytes with padding.
constexpr std::int64_t kStagingBytes = 16 * (128 + 16);

struct GpuProblem {
  std::int64_t rows, columns, depth, batch;
  std::int64_t cores;
  double results = 0; ///< steps of the depth that take as long as an element's results
  /// A side's elements are computed on their way, through registers.
  bool left_made = false, right_made = false;
  bool is_made() const { return left_made || right_made; }
};

/// What a tile's results take when nothing hides it, fitted to products of GPT-2's layers on an
/// H200: bytes that are stored and read for an element, and additions.
double steps_of_results(const Region& region, const ContractionForm& form) {
  constexpr double kByte = 30, kAddition = 8;
  double bytes = 0;
  for (const Output& out : region.outputs)
    bytes += double(size_of(out.dtype));
  const auto size = [&](const std::vector<int>& axes) {
    double n = 1;
    for (int a : axes)
      n *= double(usual_size(region.axes[std::size_t(a)].extent));
    return n;
  };
  const double results = size(result_axes(region.stages[std::size_t(form.stage)]));
  for (std::size_t s = std::size_t(form.stage) + 1; s < region.stages.size(); ++s)
    for (const Load& load : region.stages[s].loads)
      if (load.source == Source::Operand) {
        const Operand& from = region.operands[std::size_t(load.number)];
        double elements = 1;
        for (const Expr& e : from.shape)
          elements *= double(usual_size(e));
        bytes += double(size_of(from.dtype)) * std::min(1.0, elements / std::max(results, 1.0));
      }
  return kByte * bytes + kAddition * form.epilogue_flops;
}

GpuProblem problem_of(const Region& region, const ContractionForm& form, const Target& target) {
  GpuProblem p;
  p.rows = usual_size(form.rows.extent);
  p.columns = usual_size(form.columns.extent);
  p.depth = usual_size(form.depth.extent);
  p.batch = usual_size(form.batch.extent);
  p.cores = target.workers;
  p.results = steps_of_results(region, form);
  if (form.columns.slices == 1) {
    p.left_made = factor_of(region, form, form.left).pieces.empty();
    p.right_made = factor_of(region, form, form.right).pieces.empty();
  }
  return p;
}

/// A tile that is offered to every problem, and how much slower than the best one it is when there
/// is work for all.
struct Offer {
  int bm, bn, bk, stages, warps_m, warps_n;
  double cost;         ///< of a product, relative
  int turns = 1;       ///< sets of consumers that take such tiles in turn
  bool splits = false; ///< factors, of f32
  int elements() const { return bm * bn * turns; }
};

constexpr Offer kWgmmaOffers[] = {
    {128, 256, 64, 4, 2, 1, 1.0},      {256, 128, 64, 4, 2, 1, 1.0},
    {128, 192, 64, 5, 2, 1, 1.05},     {128, 128, 64, 6, 2, 1, 1.12},
    {128, 64, 64, 8, 2, 1, 1.6},       {64, 128, 64, 8, 1, 1, 1.45},
    {64, 64, 64, 10, 1, 1, 2.2},       {64, 32, 64, 12, 1, 1, 3.6},
    {64, 16, 64, 14, 1, 1, 6.5},       {128, 32, 64, 9, 2, 1, 2.5},
    {128, 16, 64, 10, 2, 1, 4.6},      {64, 8, 64, 14, 1, 1, 12.0},
    {64, 256, 64, 5, 1, 1, 1.35},      {256, 64, 64, 4, 2, 1, 1.5},
    {128, 128, 64, 6, 1, 1, 1.045, 2}, {64, 256, 64, 4, 1, 1, 1.12, 2},
};
/// Six products for one, and what splitting hides of them: on an H200, a step of 128 x 128 x 64 is
/// 2.6 us. Smaller tiles wait for their sides, of twice the bytes, from the second cache.
constexpr double kSplitSteps = 10.8;
constexpr Offer kSplitOffers[] = {
    {128, 128, 64, 2, 2, 1, kSplitSteps, 1, true},
    {128, 64, 64, 3, 2, 1, 1.25 * kSplitSteps, 1, true},
    {64, 128, 64, 3, 1, 1, 1.25 * kSplitSteps, 1, true},
    {64, 64, 64, 4, 1, 1, 1.8 * kSplitSteps, 1, true},
};
/// Beside the steps of such a tile, in products: what it waits for at first (2 us there), and what
/// its results take.
constexpr double kSplitTile = 9e6, kSplitResult = 670;
constexpr Offer kMmaOffers[] = {
    {128, 128, 64, 3, 2, 2, 1.02}, {128, 256, 32, 4, 2, 4, 1.0}, {128, 128, 32, 4, 2, 2, 1.05},
    {128, 64, 64, 4, 2, 2, 1.15},  {64, 128, 64, 4, 2, 2, 1.15}, {64, 64, 64, 4, 2, 2, 1.35},
    {32, 64, 64, 5, 1, 4, 1.8},    {64, 32, 64, 5, 4, 1, 1.8},   {16, 64, 128, 4, 1, 4, 2.6},
    {32, 32, 128, 4, 2, 2, 2.4},   {16, 32, 256, 3, 1, 4, 3.5},
};

/// The same with more threads, of which sides that they make have need.
constexpr Offer kMadeMmaOffers[] = {
    {64, 128, 64, 3, 2, 4, 1.15},
    {64, 64, 64, 3, 2, 4, 1.35},
    {32, 128, 64, 3, 1, 8, 1.5},
};
/// A step of a block that makes a side takes 0.6 us on an H200 and 11 ns for each element of a
/// thread; a core makes an element in 0.2 ns, whichever of its blocks does. In products of one
/// core.
constexpr double kMadeStep = 1.6e6, kMadeOfThread = 3e4, kMadeElement = 520;
/// Blocks on a core that hide each other's waiting.
constexpr std::int64_t kMostMadeBlocks = 4;

/// What shares of the depth cost where blocks wait for each other, in products of one core:
/// waiting, some microseconds, and an element that is stored and read, 8 bytes.
constexpr double kBarrier = 1e7, kSplitBarrier = 2.5e7, kAddedShare = 640;

/// Times as long as by asynchronous copies, where a side comes element by element, by registers,
/// and might come in boxes to queued products: 667 x 10375 by 10375 x 157 on an H200.
constexpr double kByElements = 3;

/// Whether a side of two-byte elements, not of windows, is a copy of memory of which no two
/// neighbours lie in one piece that can be copied without registers.
bool comes_by_elements(const Region& region, const ContractionForm& form) {
  const auto narrow = [&](const Side& side, const AxisGroup& group) {
    const AxisGroup& along = side.order == Side::Order::Depth ? form.depth : group;
    return side.order != Side::Order::Neither && factor_of(region, form, side).is_load &&
           !is_windows(region, form, side) && widest_piece(region, form, side, along) == 1;
  };
  return narrow(form.left, form.rows) || narrow(form.right, form.columns);
}

/// Steps that pass before the first and after the last product; sets that take turns fill the ring
/// for each other.
double filling_steps(const Offer& o) {
  if (o.splits)
    return (kSplitTile + kSplitResult * o.elements()) / (o.elements() * o.cost);
  return ((o.turns > 1 ? std::min(o.stages, 4) : o.stages) + 2.0) * o.bk;
}

/// Time of the whole problem with a tile, in products of one core: what the busiest core does.
double time_of(const GpuProblem& p, const Offer& o, GpuUnit unit, std::int64_t split) {
  const double tiles =
      std::ceil(double(ceil_quotient(p.rows, o.bm)) * double(ceil_quotient(p.columns, o.bn)) *
                double(p.batch) * double(split) / o.turns);
  const double depth = std::ceil(double(p.depth) / double(split) / o.bk) * o.bk;
  if (unit == GpuUnit::Mma && p.is_made()) {
    const double elements = double(o.bk) * ((p.left_made ? o.bm : 0) + (p.right_made ? o.bn : 0)),
                 of_block = double(o.stages) * (o.bm + o.bn) * o.bk * 2,
                 fit = std::clamp(std::floor(2.2 * double(kSharedBytes) / of_block), 1.0,
                                  double(kMostMadeBlocks)),
                 blocks = std::clamp(std::ceil(tiles / double(p.cores)), 1.0, fit),
                 step =
                     std::max(kMadeStep + kMadeOfThread * elements / (32.0 * o.warps_m * o.warps_n),
                              blocks * std::max(kMadeElement * elements,
                                                double(o.elements()) * o.cost * o.bk));
    return std::ceil(tiles / double(p.cores) / blocks) * step * (depth / o.bk + 2) +
           (split > 1 ? double(o.bm) * o.bn * double(split) * 24 : 0);
  }
  // A second block on a core costs less than a second core would gain.
  const double waves = std::ceil(tiles / double(p.cores));
  const double products = waves * double(o.elements()) * o.cost * (depth + filling_steps(o));
  if (split == 1)
    return products;
  if (unit == GpuUnit::Wgmma) // a barrier of the grid, behind which all blocks add shares up
    return products + (o.splits ? kSplitBarrier : kBarrier) +
           tiles * double(o.bm) * o.bn / double(p.cores) * kAddedShare;
  return products + double(o.bm) * o.bn * double(split) * 24;
}

/// What is saved of the time of the results, which others do not count, where sets of consumers
/// take turns: a set works on them alone, while the next one multiplies.
double hidden_of(const GpuProblem& p, const Offer& o) {
  if (o.turns == 1)
    return 0;
  // Half of the threads need somewhat more than twice the time.
  constexpr double kAlone = 2.2;
  const double tiles = double(ceil_quotient(p.rows, o.bm)) *
                       double(ceil_quotient(p.columns, o.bn)) * double(p.batch),
               waves = std::ceil(tiles / o.turns / double(p.cores)),
               products = double(p.depth) * o.cost,
               seen = std::max(0.0, (kAlone * p.results - products) / o.turns);
  return (waves - 1) * double(o.elements()) * std::max(0.0, p.results - seen);
}

/// The same when the last wave's tiles are cut along the depth, and into how many shares.
struct Streamed {
  std::int64_t shares = 0; ///< 0: it is full
  double time = 0;
};
Streamed streamed(const GpuProblem& p, const Offer& o) {
  const std::int64_t tiles = ceil_quotient(p.rows, o.bm) * ceil_quotient(p.columns, o.bn) * p.batch,
                     waves = tiles / p.cores, left = tiles % p.cores;
  if (left == 0)
    return {};
  // Shares that end with their tiles leave one part each; others two, but all cores have work.
  const std::int64_t each = p.cores / left, shares = each > 1 ? each * left : p.cores;
  const double parts = each > 1 ? double(each) : 2.5, sums = each > 1 ? 1 : 2;
  // Steps of the depth that take as long as moving a tile's sums: when all cores do, and when one
  // does; fitted to measurements.
  const double steps = o.splits ? kSplitSteps : 1, kAll = 450 / steps, kOne = 130 / steps;
  const double last = double(p.depth) * double(left) / double(shares) + kAll * sums +
                      parts * (kOne + (kAll - kOne) * double(left) / double(p.cores));
  const double fill = filling_steps(o) * (double(waves) + sums);
  return {shares, double(o.bm) * o.bn * o.cost * (double(p.depth) * double(waves) + last + fill)};
}

bool is_one_wave(const GpuProblem& p, const Offer& o) {
  return ceil_quotient(p.rows, o.bm) * ceil_quotient(p.columns, o.bn) * p.batch <= p.cores;
}

/// Shares of the depth that are clearly faster than fewer ones, of products by matrix units. They
/// need not be a power of two where all blocks add them up; elsewhere one block adds up those of a
/// tile, and few are better.
std::int64_t best_split(const GpuProblem& p, const Offer& o, GpuUnit unit) {
  constexpr std::int64_t kMostOfOneBlock = 128;
  const bool any = unit == GpuUnit::Wgmma;
  const std::int64_t most = any ? std::min(p.cores, kMostShares) : kMostOfOneBlock;
  std::int64_t best = 1;
  for (std::int64_t split = 2; split <= most; split = any ? split + 1 : 2 * split) {
    const double least = any && best > 1 ? 0.97 : any ? 0.9 : 0.8;
    const std::int64_t parts = ceil_quotient(p.depth, o.bk);
    const bool has_empty_share = ceil_quotient(parts, split) * (split - 1) >= parts;
    if (p.depth / split >= 4 * o.bk && !(any && has_empty_share) &&
        time_of(p, o, unit, split) < least * time_of(p, o, unit, best))
      best = split;
  }
  return best;
}

FmaProblem fma_problem(const Region& region, const ContractionForm& form, const GpuProblem& p) {
  const auto known = [](const AxisGroup& group) { return group.extent.is_constant(); };
  return {.rows = p.rows,
          .columns = p.columns,
          .depth = p.depth,
          .batch = p.batch,
          .left_copy = copied_at_once(region, form, form.left, form.rows),
          .right_copy = copied_at_once(region, form, form.right, form.columns),
          .has_shares = known(form.batch) && known(form.rows) && known(form.columns)};
}

/// Tiles in which each warp has columns of all slices.
std::vector<Offer> offers_of_slices(const ContractionForm& form, GpuUnit unit) {
  const int slices = int(form.columns.slices);
  const bool mma = unit == GpuUnit::Mma;
  const int across = mma ? std::lcm(16, 8 * slices) : 32 * slices, down = mma ? 16 : 4;
  constexpr int kMostSums = 64, kMostOfFew = 128; // of a thread; of one of few, of fragments
  std::vector<Offer> offers;
  for (const int warps_n : {1, 2, 4})
    for (const int warps_m : {1, 2, 4})
      for (const int rows : {1, 2, 4, 8}) {
        const int bm = down * rows * warps_m, bn = across * warps_n;
        const int sums = down * rows * across / 32;
        if (sums > (mma && warps_m * warps_n <= 8 ? kMostOfFew : kMostSums))
          continue;
        // What a thread reads for each product, and what a small block leaves undone.
        const double reads = 1.0 / (down * rows) + 1.0 / across,
                     cost = mma ? 0.75 + 8 * reads : 0.6 + 6 * reads;
        const double idle = 1 + 0.5 / (warps_m * warps_n);
        for (const int bk : {mma ? 64 : 16, mma ? 128 : 32})
          offers.push_back({bm, bn, bk, 3, warps_m, warps_n, cost * idle});
      }
  return offers;
}

Schedule schedule_of(const GpuProblem& p, const GpuTiles& t) {
  Schedule s;
  s.generator = "gpu_contraction";
  s.knobs = {{"bm", t.bm},         {"bn", t.bn},      {"bk", t.bk},
             {"stages", t.stages}, {"wm", t.warps_m}, {"wn", t.warps_n}};
  if (t.warps_k > 1)
    s.knobs["wk"] = t.warps_k;
  s.split_reduce = t.split;
  s.order_group = std::min<std::int64_t>(8, ceil_quotient(p.rows, t.bm));
  return s;
}

GpuTiles tiles_of(const Offer& o, GpuUnit unit, std::int64_t split) {
  GpuTiles t;
  t.unit = unit;
  t.bm = o.bm;
  t.bn = o.bn;
  t.bk = o.bk;
  t.stages = o.stages;
  t.warps_m = o.warps_m;
  t.warps_n = o.warps_n;
  t.split = split;
  return t;
}

Schedule schedule_of(const GpuProblem& p, const Offer& o, GpuUnit unit, std::int64_t split) {
  Schedule s = schedule_of(p, tiles_of(o, unit, split));
  auto& k = s.knobs;
  if (unit == GpuUnit::Mma)
    s.mma = "m16n8k16";
  if (o.splits)
    s.knobs["split_parts"] = 1;
  if (unit == GpuUnit::Wgmma) {
    s.mma = "wgmma";
    s.order_group = std::min<std::int64_t>(16, ceil_quotient(p.rows, o.bm));
    s.knobs.erase("wn");
    if (o.turns > 1)
      k["pingpong"] = o.turns;
  }
  if (!o.splits)
    k["staged"] = 1;
  return s;
}

} // namespace

int slice_run(GpuUnit unit) {
  return unit == GpuUnit::Mma ? 8 : 32; // a fragment's columns; a vector of each lane across a warp
}

FoundTiles gpu_tiles_of(const Schedule& schedule, const Region& region, const ContractionForm& form,
                        const Target& target) {
  FoundTiles found;
  GpuTiles& t = found.tiles;
  const auto knob = [&](const char* name, int otherwise, int most) {
    return int(std::clamp<std::int64_t>(schedule.knob(name, otherwise), 1, most));
  };
  t.bm = knob("bm", 64, 1024);
  t.bn = knob("bn", 64, 1024);
  t.bk = knob("bk", 16, 1024);
  t.stages = knob("stages", 2, 16);
  t.warps_m = knob("wm", 2, 32);
  t.warps_n = knob("wn", 2, 32);
  t.warps_k = knob("wk", 1, 32);
  t.group = std::max<std::int64_t>(schedule.order_group, 1);
  t.split = std::clamp<std::int64_t>(schedule.split_reduce, 1, kMostShares);
  t.shares = schedule.knob("streamk", 0);
  t.turns = knob("pingpong", 1, 4);
  const bool splits = schedule.knob("split_parts", 0) != 0;
  const std::int64_t shared =
      target.block_shared_bytes > 0 ? target.block_shared_bytes : kSharedBytes;
  std::int64_t bytes = std::int64_t(size_of(form.accumulator));
  const Factor left = factor_of(region, form, form.left),
               right = factor_of(region, form, form.right);
  const auto known = [](const AxisGroup& group) { return group.extent.is_constant(); };
  if (t.split > 1 && !(known(form.batch) && known(form.rows) && known(form.columns)))
    found.reason = "a split depth needs a known number of tiles";
  if (!schedule.mma.empty()) {
    bytes = 2;
    t.staged = schedule.knob("staged", 0) != 0;
    if (!splits &&
        (left.dtype != right.dtype || (left.dtype != DType::BF16 && left.dtype != DType::F16) ||
         form.accumulator != DType::F32))
      found.reason = "its factors are not both bf16 or both f16";
  }
  if (schedule.mma.empty()) {
    t.unit = GpuUnit::Fma;
    if (t.bm % (4 * t.warps_m) != 0 || t.bn % (32 * t.warps_n) != 0)
      found.reason = "a warp's part is no multiple of 4 by 32";
    else if (!std::has_single_bit(unsigned(t.warps_k)) || t.bk % t.warps_k != 0)
      found.reason = "warps that share a piece's depth are a power of two that divides it";
  } else if (schedule.mma == "m16n8k16") {
    t.unit = GpuUnit::Mma;
    if (t.bm % (16 * t.warps_m) != 0 || t.bn % (16 * t.warps_n) != 0 || t.bk % 16 != 0)
      found.reason = "a warp's part is no multiple of 16 by 16";
  } else if (schedule.mma == "wgmma") {
    t.unit = GpuUnit::Wgmma;
    t.producers = splits ? 2 : 1;
    t.split_parts = splits ? kSplitParts : 0;
    t.warps_n = 1;
    t.bk = 64;
    if (target.unit(FragmentLayout::SwizzledSharedRows) == nullptr)
      found.reason = "wgmma is of compute capability 9.0 alone";
    else if (t.bm % (64 * t.warps_m) != 0 || t.bn % 8 != 0 || t.bn > 256 ||
             t.bm / t.warps_m / 64 * t.bn > 384)
      found.reason = "a warp group's part is no multiple of 64 by 8, or too large";
    else if (t.split > 1 && t.shares > 0)
      found.reason = "the depth is cut into shares of all tiles or of the last wave's, not both";
  } else {
    found.reason = "no matrix instruction " + schedule.mma;
  }
  if (splits && t.unit != GpuUnit::Wgmma)
    found.reason = "split_parts is of wgmma alone";
  if (splits && t.bm / t.warps_m / 64 * t.bn > 128)
    found.reason = "two sets of sums that threads lack registers for";
  const std::int64_t slices = form.columns.slices;
  if (slices > 1 && t.unit == GpuUnit::Wgmma)
    found.reason = "slices of its result are combined";
  else if (slices > 1 && (t.bn / t.warps_n) % (slice_run(t.unit) * slices) != 0)
    found.reason = "a warp's part has no columns of some slice";
  t.staged = t.staged && slices == 1;
  if (t.shares > 0 && t.unit != GpuUnit::Wgmma)
    found.reason = "streamk is of wgmma alone";
  if (t.turns > 1 && t.unit != GpuUnit::Wgmma)
    found.reason = "pingpong is of wgmma alone";
  if (t.warps_k > 1 && t.unit != GpuUnit::Fma)
    found.reason = "wk is of fused multiply-adds alone";
  if (t.stages < 2)
    found.reason = "less than two pieces of shared memory";
  if (t.threads() > 1024)
    found.reason = "more than 1024 threads";
  const std::int64_t staging = t.staged ? t.threads() / 32 * kStagingBytes : 0;
  const std::int64_t ring =
      t.unit == GpuUnit::Wgmma
          ? std::int64_t(t.bm + t.bn) * t.bk * 2 * std::max(t.split_parts, 1) + 16
          : (t.bm + t.bn + 16) * (t.bk + 8) * bytes;
  const std::int64_t joined = std::int64_t(t.warps_k / 2) * t.bm * t.bn * bytes;
  if (t.stages * ring + staging + joined + 1024 > shared)
    found.reason = "more shared memory than a block can have";
  return found;
}

namespace {
/// How much longer queued products take with a form's sides as they come to shared memory.
class SwizzledSides {
public:
  SwizzledSides(const Region& region, const ContractionForm& form)
      : r_(region), f_(ordered_for_pieces(region, form)) {}
  struct Way {
    double cost = 0; ///< beside boxes; 0: it cannot come
    int registers = 0;
  };
  /// Both sides' in tiles of `bm` rows by `bn` columns.
  Way way(int bm, int bn) {
    const Way left = way_of(false, bm), right = way_of(true, bn);
    const int registers = left.registers + right.registers;
    return {registers > kMostCopyRegisters ? 0 : left.cost * right.cost, registers};
  }

private:
  /// An estimate.
  static double cost_of_pieces(int lanes) { return lanes == 8 ? 1.15 : lanes == 4 ? 1.3 : 1.7; }

  Way way_of(bool right, int panel) {
    const auto [it, fresh] = known_.try_emplace({right, panel});
    if (fresh) {
      const SwizzledView view =
          swizzled_view(r_, f_, right ? f_.right : f_.left, right ? f_.columns : f_.rows, panel);
      if (view.reason.empty())
        it->second = {view.copied ? cost_of_pieces(view.pieces.lanes) : 1.0,
                      copy_registers(view, panel, kCopyThreads)};
    }
    return it->second;
  }

  const Region& r_;
  ContractionForm f_;
  std::map<std::pair<bool, int>, Way> known_; ///< by side and panel
};

/// Whether the numbers of tiles and of steps are constants.
bool has_known_sizes(const ContractionForm& form) {
  return form.rows.extent.constant() && form.columns.extent.constant() &&
         form.depth.extent.constant() && form.batch.extent.constant();
}

struct Choice {
  Schedule schedule;
  double time;       ///< in products of one core, without what results take
  double hidden = 0; ///< of the latter
};

/// All that are offered, ordered by time.
std::vector<Choice> choices_of(const Region& region, const ContractionForm& form,
                               const Target& target) {
  const GpuProblem p = problem_of(region, form, target);
  std::vector<Choice> choices;
  SwizzledSides sides(region, form);
  const auto add = [&](std::span<const Offer> offers, GpuUnit unit, double scale) {
    for (const Offer& o : offers) {
      if (unit == GpuUnit::Wgmma) {
        // Few rows are better the columns of the instruction, whose rows are never less than 64.
        const GpuProblem turned{p.columns, p.rows, p.depth, p.batch, p.cores};
        for (const bool swap : {false, true}) {
          const GpuProblem& q = swap ? turned : p;
          const SwizzledSides::Way way = o.splits ? SwizzledSides::Way{1.0}
                                         : swap   ? sides.way(o.bn, o.bm)
                                                  : sides.way(o.bm, o.bn);
          // Columns that are rows of the instruction are stored one by one: nothing to hide.
          if (way.cost == 0 || (swap && o.turns > 1))
            continue;
          const double factor = way.cost * (swap ? 1.02 * scale : scale),
                       time = time_of(q, o, unit, 1);
          const auto offer = [&](double takes, std::int64_t shares, std::int64_t split = 1) {
            choices.push_back({schedule_of(q, o, unit, split), factor * takes});
            auto& knobs = choices.back().schedule.knobs;
            if (swap)
              knobs["swap"] = 1;
            if (shares > 0)
              knobs["streamk"] = shares;
          };
          offer(time, 0);
          choices.back().hidden = factor * hidden_of(q, o);
          if (o.turns > 1) // whole tiles only
            continue;
          const Streamed cut = streamed(q, o);
          const std::int64_t split = best_split(q, o, unit);
          if (split > 1)
            offer(time_of(q, o, unit, split), 0, split);
          // A last wave that leaves cores without work. Where it is most of the work, no two blocks
          // are at the same piece of the depth, and each brings its own panels from memory.
          if (cut.shares > 0 && cut.time < kWorthStreaming * time)
            offer(split > 1 || is_one_wave(q, o) ? std::max(cut.time, time) : cut.time, cut.shares);
        }
        continue;
      }
      const std::int64_t split = best_split(p, o, unit);
      choices.push_back({schedule_of(p, o, unit, split), scale * time_of(p, o, unit, split)});
      if (split > 1)
        choices.push_back({schedule_of(p, o, unit, 1), scale * time_of(p, o, unit, 1)});
    }
  };
  // What sides are made of counts where tiles are compared with each other; it takes other units as
  // long.
  const auto add_made = [&](std::span<const Offer> offers, double scale) {
    GpuProblem plain = p;
    plain.left_made = plain.right_made = false;
    double least = std::numeric_limits<double>::infinity(), least_made = least;
    for (const Offer& o : offers) {
      least = std::min(least, time_of(plain, o, GpuUnit::Mma, best_split(plain, o, GpuUnit::Mma)));
      least_made =
          std::min(least_made, time_of(p, o, GpuUnit::Mma, best_split(p, o, GpuUnit::Mma)));
    }
    scale *= least / least_made;
    add(offers, GpuUnit::Mma, scale);
    for (const Offer& o : kMadeMmaOffers)
      choices.push_back({schedule_of(p, o, GpuUnit::Mma, best_split(p, o, GpuUnit::Mma)),
                         scale * time_of(p, o, GpuUnit::Mma, best_split(p, o, GpuUnit::Mma))});
  };
  const Factor left = factor_of(region, form, form.left),
               right = factor_of(region, form, form.right);
  if (left.dtype == right.dtype && (left.dtype == DType::BF16 || left.dtype == DType::F16) &&
      form.accumulator == DType::F32) {
    const bool queued = target.unit(FragmentLayout::SwizzledSharedRows) != nullptr;
    if (queued && form.columns.slices == 1)
      add(kWgmmaOffers, GpuUnit::Wgmma, 0.6);
    const bool by_elements = !choices.empty() && comes_by_elements(region, form);
    if (p.is_made())
      add_made(kMmaOffers, queued ? 1.4 : 1.0);
    else
      add(kMmaOffers, GpuUnit::Mma, (queued ? 1.4 : 1.0) * (by_elements ? kByElements : 1.0));
    if (form.columns.slices > 1)
      add(offers_of_slices(form, GpuUnit::Mma), GpuUnit::Mma, queued ? 1.4 : 1.0);
  }
  const auto is_f32 = [](const Factor& f) { return f.dtype == DType::F32; };
  const auto is_float_upto_f32 = [](const Factor& f) {
    return is_float(f.dtype) && size_of(f.dtype) <= 4;
  };
  if (form.accumulator == DType::F32 && is_float_upto_f32(left) && is_float_upto_f32(right) &&
      (is_f32(left) || is_f32(right)) && form.columns.slices == 1 &&
      target.unit(FragmentLayout::SwizzledSharedRows) != nullptr)
    add(kSplitOffers, GpuUnit::Wgmma, 0.6);
  constexpr double kCycle = 128 * 12; // in products of a matrix unit
  const FmaProblem by_threads = fma_problem(region, form, p);
  if (form.columns.slices > 1)
    for (const Offer& o : offers_of_slices(form, GpuUnit::Fma)) {
      const FmaChoice c = with_best_split(by_threads, tiles_of(o, GpuUnit::Fma, 1), target);
      choices.push_back({schedule_of(p, c.tiles), kCycle * c.cycles});
    }
  else
    for (const FmaChoice& c : fma_choices(by_threads, target))
      choices.push_back({schedule_of(p, c.tiles), kCycle * c.cycles});
  std::stable_sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    return a.time - a.hidden < b.time - b.hidden;
  });
  return choices;
}
} // namespace

double gpu_contraction_seconds(const Region& region, const ContractionForm& form,
                               const Target& target) {
  // A product of one core by a matrix unit; a step of its ring, which waits for the copies of the
  // next one.
  constexpr double kProductSeconds = 3.8e-13, kStepSeconds = 1.5e-7;
  for (const Choice& c : choices_of(region, form, target)) {
    const FoundTiles found = gpu_tiles_of(c.schedule, region, form, target);
    if (!found.reason.empty())
      continue;
    const GpuTiles& t = found.tiles;
    const auto steps = double(ceil_quotient(usual_size(form.depth.extent), t.bk * t.split));
    return c.time * kProductSeconds + (t.unit == GpuUnit::Fma ? 0 : steps * kStepSeconds);
  }
  return std::numeric_limits<double>::infinity();
}

std::vector<Schedule> gpu_contraction_space(const Region& region, const ContractionForm& form,
                                            const Target& target) {
  std::vector<Choice> choices = choices_of(region, form, target);
  std::vector<Schedule> space;
  for (Choice& c : choices) {
    const FoundTiles found = gpu_tiles_of(c.schedule, region, form, target);
    if (!found.reason.empty())
      continue;
    const GpuTiles& t = found.tiles;
    if ((t.shares > 0 || (t.unit == GpuUnit::Wgmma && t.split > 1)) && !has_known_sizes(form))
      continue;
    space.push_back(std::move(c.schedule));
  }
  return space;
}

} // namespace egret::kernel
