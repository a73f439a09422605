// How long rows by groups of a GPU's threads take: instructions of warps, lines of memory that
// their accesses touch, bytes, blocks that are started, and how long a row waits.
#include "kernel/gpu_row_time.h"

#include "kernel/analysis.h"
#include "kernel/gpu_nest.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace egret::kernel {

namespace {

/// Of a multiprocessor, in cycles: 28.7 T instructions of threads a second and 4.1 TB/s on 132 of
/// them (bench/gpu_notes.md).
constexpr double kClock = 1.7e9, kSchedulers = 4, kMemoryBytes = 18.3, kL2Bytes = 40,
                 kLineBytes = 128, kMemorySector = 32;
/// Cycles until a value is there: from memory, the L2 cache, the L1 cache or shared memory; and
/// until all lanes, or all warps of a block, have one step of a sum behind them.
constexpr double kFar = 650, kFromL2 = 270, kNear = 35, kLaneStep = 30, kWarpsMeet = 120;
/// Of the L2 cache, what holds rows that one multiprocessor reads: its halves may both have them
/// (of rows of 50257, 512 threads each were a quarter faster than 256 and 1024).
constexpr double kOwnL2 = 0.5;
/// Cycles between two blocks that a multiprocessor begins; until a block's first load, and until
/// the first of a resident block's next row.
constexpr double kBlock = 70, kBegin = 500, kNext = 100;
/// Cycles from one instruction of a warp to the next that needs it, of which some overlap.
constexpr double kDependent = 2.5;
/// Cycles between two rows taken from a work queue, by whichever block: updates of one element come
/// one after the other (65536 of them take 0.13 ms on an H200).
constexpr double kQueue = 3.4;
/// Barriers of the grid and what is written and read around them.
constexpr double kGridBarrier = 3000;
/// Instructions: of an access, of a row, of an iteration of a loop.
constexpr double kAccess = 4, kRow = 30, kIteration = 5;
/// Of an operation at the most: a GPU has instructions for the hard part of exponentials.
constexpr double kMostFlops = 8;
/// Registers of a thread beside its elements, and that an element at hand takes, in straight code
/// and in loops (NVRTC 13.0, sm_90a).
constexpr double kRegisters = 28, kElementRegisters = 1.1, kLoopRegisters = 1.25;
/// Those beside elements and weights that compilers do without before they spill: RMS norm of 32768
/// bf16 takes 63, 119 and 222 registers of 1024, 512 and 256 threads.
constexpr double kFewestRegisters = 16;
/// How times grow with the registers that a thread lacks (of rows of 50304, bench/gpu_notes.md).
constexpr double kSpilled = 3;

/// Stages at the points of rows that `wanted` is made of, up to sums.
void reach(const Region& region, int wanted, std::set<int>& seen) {
  const Stage& stage = region.stages[std::size_t(wanted)];
  if (stage.axes.size() != region.axes.size() || !seen.insert(wanted).second)
    return;
  for (const Load& load : stage.loads)
    if (load.source == Source::Stage &&
        region.stages[std::size_t(load.number)].kind == StageKind::Map)
      reach(region, load.number, seen);
}

double instructions_of(const Stage& stage) {
  double flops = stage.kind == StageKind::Map ? 0 : double(stage.yields.size());
  for (const BodyValue& v : stage.body)
    if (v.kind == BodyValue::Kind::Apply)
      flops += std::min(double(info_of(v.op).flops), kMostFlops);
  return flops;
}

} // namespace

RowTime::RowTime(const Region& region, RowFacts facts, const Target& target)
    : region_(region), target_(target), facts_(std::move(facts)) {
  rows_ = std::max(1.0, double(about(points_of(region, facts_.passes.parallel))));
  row_elements_ = std::max(1.0, double(about(points_of(region, facts_.passes.reduced))));
  describe();
}

void RowTime::describe() {
  const Passes& p = facts_.passes;
  std::set<int> made;
  std::vector<Read> known;
  for (int pass = 0; pass < p.count; ++pass) {
    Pass& now = passes_.emplace_back();
    std::set<int> stages;
    for (int s : p.reductions[std::size_t(pass)]) {
      const Stage& stage = region_.stages[std::size_t(s)];
      reach(region_, s, stages);
      const double yields = double(stage.yields.size());
      now.states += yields;
      now.state_parts += yields *
                         (stage.monoid == Monoid::ArgMax   ? 2.5
                          : p.mean_of[std::size_t(s)] >= 0 ? 3
                                                           : 1) *
                         std::max(1.0, double(size_of(stage.acc_dtype)) / 4);
      width_ = std::max(width_, double(size_of(stage.acc_dtype)) / 4);
    }
    for (int o : p.outputs[std::size_t(pass)]) {
      reach(region_, region_.outputs[std::size_t(o)].stage, stages);
      now.stored_bytes += double(size_of(region_.outputs[std::size_t(o)].dtype));
      ++now.outputs;
    }
    for (int s : stages) {
      const Stage& stage = region_.stages[std::size_t(s)];
      const bool fresh = made.insert(s).second;
      now.flops += instructions_of(stage);
      now.fresh_flops += fresh ? instructions_of(stage) : 0;
      for (const Load& load : stage.loads) {
        if (load.source != Source::Operand)
          continue;
        const std::vector<bool> by = axes_of_load(region_, stage, load);
        if (!by[std::size_t(facts_.inner)])
          continue; // once for a row
        const bool by_row = p.parallel.empty() || std::ranges::any_of(p.parallel, [&](int a) {
                              return by[std::size_t(a)];
                            });
        const auto bytes = double(size_of(region_.operands[std::size_t(load.number)].dtype));
        const auto stride = stride_of(region_, stage, load, facts_.inner);
        const Read read{load.number, bytes, stride ? std::abs(double(*stride)) : kLineBytes / bytes,
                        by_row};
        if (std::ranges::find(now.reads, read) == now.reads.end())
          now.reads.push_back(read);
        if (std::ranges::find(known, read) == known.end()) {
          known.push_back(read);
          now.fresh_reads.push_back(read);
          // Whole sectors come from memory.
          if (by_row)
            read_bytes_ +=
                row_elements_ * std::min(std::max(1.0, read.stride) * bytes, kMemorySector);
        }
      }
    }
    stored_bytes_ += row_elements_ * now.stored_bytes;
  }
  point_outputs_ = double(p.point_outputs.size());
  for (int o : p.point_outputs)
    stored_bytes_ += double(size_of(region_.outputs[std::size_t(o)].dtype));
}

/// What follows from a schedule's parameters.
struct RowTime::Shape {
  double threads, group, lanes, vectors, turns, pieces, blocks, copies, run;
  RowKeep keep;
  bool shifted, resident, drawn, rolled;
};

RowTime::Shape RowTime::shape_of(const Schedule& schedule) const {
  Shape s{};
  s.threads = double(schedule.knob("threads", 256));
  s.group = double(schedule.knob("group", std::int64_t(s.threads)));
  s.keep = RowKeep(schedule.knob("keep", 0));
  s.shifted = schedule.knob("shift", 0) != 0;
  const int lanes =
      s.shifted ? shifted_rows(region_, facts_, target_).lanes
                : gpu_lanes(region_, facts_.inner,
                            schedule.vector_bytes ? schedule.vector_bytes : target_.vector_bytes);
  s.lanes = lanes;
  s.pieces = double(schedule.split_reduce);
  s.vectors = std::ceil(double(about(facts_.vectors(region_, lanes, s.shifted))) / s.pieces);
  s.turns = std::max(1.0, std::ceil(s.vectors / s.group));
  s.run = double(schedule.knob("run", 0));
  s.blocks =
      s.run > 0 ? std::ceil(rows_ / s.run) : std::ceil(rows_ * s.pieces / (s.threads / s.group));
  const double roll = double(schedule.knob("roll", 0));
  s.rolled = s.keep == RowKeep::Nowhere || roll > 0;
  // Compilers move all loads of straight code to its beginning, also those of shared memory.
  s.copies = !s.rolled ? s.turns : roll > 0 ? roll : double(schedule.knob("copies", 4));
  s.copies = std::min(s.copies, s.turns);
  s.drawn = schedule.order == WorkOrder::Drawn;
  s.resident = s.drawn || s.run > 0 || schedule.knob("resident", 0) != 0;
  return s;
}

double RowTime::seconds(const Schedule& schedule) const {
  const Shape s = shape_of(schedule);
  const double workers = std::max(1, target_.workers);
  const double elements = s.turns * s.lanes; // of a thread along its row
  const double warps = s.threads / 32, row_threads = std::min(s.group, 32.0);

  // What a multiprocessor holds.
  double at_hand = (s.keep == RowKeep::Registers ? elements : s.copies * s.lanes) * width_;
  double weights = 0, shared = 0, row_reads = 0;
  for (const Pass& pass : passes_)
    for (const Read& read : pass.fresh_reads) {
      row_reads += read.by_row ? 1 : 0;
      weights += read.by_row ? 0 : elements * read.bytes / 4;
      if (s.keep == RowKeep::Shared && read.by_row)
        shared += (s.run > 0 ? 2 : 1) * s.turns * s.threads * s.lanes * read.bytes;
    }
  at_hand *= std::max(1.0, row_reads) * (s.rolled ? kLoopRegisters : kElementRegisters);
  if (s.run > 0 && s.keep != RowKeep::Shared)
    shared = 2 * read_bytes_;
  const auto limit = double(target_.registers_of_thread(s.threads));
  // What all rows read is loaded early if there are registers for it, and once by resident blocks.
  const bool loads_early =
      s.keep == RowKeep::Registers && weights > 0 && kRegisters + at_hand + weights <= limit;
  const bool hoists = loads_early && s.resident;
  const double registers = kRegisters + at_hand + (loads_early ? weights : 0);
  // Straight code has weights at hand beside the row, of a block that has no more registers, too
  // (layer norm of 32768 bf16 by 512 threads: 196 bytes spilled, 0.229 ms for 0.147 in a loop).
  const double needed =
      s.rolled ? registers : std::max(registers, kFewestRegisters + at_hand + weights);
  const double spills = std::pow(std::max(1.0, needed / limit), kSpilled);
  const double resident = std::max(
      1.0,
      std::floor(std::min({double(target_.blocks), double(target_.threads) / s.threads,
                           double(target_.registers) / (s.threads * std::min(registers, limit)),
                           double(target_.shared_bytes) / (shared + 1024)})));

  // Where a row is found again that was read before; half of it, on average, lies between.
  const double again = resident * (s.threads / s.group) * read_bytes_ / s.pieces;
  const double l1 = std::clamp(
      2 - again / (0.4 * double(target_.shared_bytes) - resident * shared * 0.5 + 1), 0.0, 1.0);
  const double l2 = std::clamp(2 - again * workers / (kOwnL2 * double(target_.l2_bytes)), 0.0, 1.0);
  const double wait_again = l1 * kNear + (1 - l1) * (l2 * kFromL2 + (1 - l2) * kFar);

  // Lines of memory that a warp's access touches: of vectors, or of elements that lie apart.
  const auto lines = [&](double bytes, double stride, bool by_row) {
    const bool vectors = stride == 1;
    const double groups = by_row ? 32 / row_threads : 1, access = vectors ? s.lanes * bytes : bytes;
    const double span = row_threads * s.lanes * bytes * std::max(1.0, stride);
    const double row_bytes = row_elements_ * bytes * std::max(1.0, stride);
    const bool aligned = access >= 16 && std::fmod(row_bytes, span) == 0;
    const double each =
        aligned ? std::max(1.0, span / kLineBytes) : 1 + (span - bytes) / kLineBytes;
    const double touched =
        std::min(groups * each, 1 + ((groups - 1) * row_bytes + span) / kLineBytes);
    return std::max(std::min(touched, 32.0), 32 * access / kLineBytes);
  };

  double instructions = kRow + point_outputs_ * kAccess, requests = 0, latency = 0, l2_bytes = 0,
         memory_bytes = rows_ * (read_bytes_ + stored_bytes_);
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    const Pass& pass = passes_[p];
    const bool registers_keep = s.keep == RowKeep::Registers;
    double extra = s.shifted ? 1 : 0; // the ends of a shifted row
    const double turns = s.turns + extra;
    for (const Read& read : registers_keep ? pass.fresh_reads : pass.reads) {
      if (!read.by_row && hoists)
        continue;
      const bool fresh = std::ranges::find(pass.fresh_reads, read) != pass.fresh_reads.end();
      const double accesses = turns * (read.stride == 1 ? 1 : s.lanes);
      instructions += accesses * kAccess + turns * s.lanes * (read.bytes < 4 ? 1 : 0);
      if (s.keep == RowKeep::Shared && read.by_row && (!fresh || s.run > 0)) {
        requests += accesses * std::max(1.0, 32 * s.lanes * read.bytes / kLineBytes);
        continue;
      }
      requests += accesses * lines(read.bytes, read.stride, read.by_row);
      if (s.keep == RowKeep::Shared && read.by_row) {
        instructions += accesses * 2;
        requests += accesses * std::max(1.0, 32 * s.lanes * read.bytes / kLineBytes);
      }
      if (!fresh && read.by_row) {
        l2_bytes += (1 - l1) * rows_ * row_elements_ * read.bytes;
        memory_bytes += (1 - l1) * (1 - l2) * rows_ * row_elements_ * read.bytes;
      }
      if (!read.by_row && !s.resident)
        l2_bytes += 0.25 * rows_ / (s.threads / s.group) * row_elements_ * read.bytes;
    }
    instructions += turns * s.lanes * (registers_keep ? pass.fresh_flops : pass.flops) * width_;
    instructions += turns * (pass.outputs * kAccess + s.lanes * pass.stored_bytes / 4);
    if (pass.outputs > 0)
      requests += turns * lines(pass.stored_bytes / pass.outputs, 1, true) * pass.outputs;
    const double iterations = s.rolled ? std::ceil(turns / s.copies) : 0;
    instructions += iterations * kIteration;
    // Each pass waits for its first loads; those of straight code are under way together.
    const bool loads = !(registers_keep ? pass.fresh_reads : pass.reads).empty();
    if (loads && s.keep == RowKeep::Nowhere)
      latency += iterations * (p == 0 ? kFar : wait_again);
    else if (loads && s.run == 0)
      latency += p == 0 ? kFar : kNear;
    else if (loads)
      latency += kNear;
    // Sums of the group.
    double steps = std::log2(std::max(1.0, row_threads)), met = 0;
    if (s.group > 32) {
      steps += std::log2(std::max(2.0, warps));
      met = kWarpsMeet;
    }
    instructions += pass.state_parts * (s.lanes - 1 + 2 * steps + (s.group > 32 ? 12 : 0));
    latency += pass.states > 0 ? steps * kLaneStep + met * pass.states : 0;
  }
  latency += instructions * kDependent + (s.drawn      ? kFar + kWarpsMeet
                                          : s.resident ? kNext
                                                       : kBegin);
  if (s.run > 0)
    latency = std::max(latency, kFar);
  if (s.pieces > 1)
    latency += 2 * kFar;

  // All rows of the busiest multiprocessor.
  const double rounds = s.run > 0 ? std::ceil(rows_ / workers) : std::ceil(s.blocks / workers);
  const double waves = rounds <= resident ? 1 : rounds / resident + 0.3;
  const double issue = rounds * warps * instructions / kSchedulers;
  const double asked = rounds * warps * requests;
  const double waited = waves * latency;
  const double begun = s.resident ? 0 : rounds * kBlock;
  const double queue = s.drawn ? s.blocks * kQueue : 0;
  const double used = std::min(s.blocks, workers);
  const double from_memory = memory_bytes / kMemoryBytes / workers;
  const double from_l2 = l2_bytes / kL2Bytes / used;
  const std::array all{issue, asked, waited, begun, queue, from_memory, from_l2};
  const double slowest = *std::ranges::max_element(all);
  double sum = 0;
  for (double part : all)
    sum += part;
  const double barriers =
      s.pieces > 1 && facts_.passes.waits() ? double(passes_.size()) * kGridBarrier : 0;
  return (spills * (slowest + 0.2 * (sum - slowest)) + barriers) / kClock;
}

} // namespace egret::kernel
