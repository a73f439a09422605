#include "kernel/loops/estimate.h"

#include "kernel/analysis.h"
#include "kernel/loops/windows.h"
#include "kernel/program.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace egret::kernel::loops {

namespace {

/// Of a core, in cycles and bytes: round figures of present machines, which rank trees of one
/// region. Reports show seconds at this clock.
constexpr double kClock = 3e9, kLatency = 4, kLine = 64;
constexpr double kL2Bytes = 32, kL3Bytes = 12, kMemoryBytes = 4;
/// Cores that memory can feed.
constexpr double kFeeds = 3;
constexpr double kLaunchSeconds = 1e-6;
/// What a size without a near upper bound counts as.
constexpr double kUsual = 1024, kNearBound = 1 << 16;

bool written_out(Bind bind) {
  return bind == Bind::Unroll || bind == Bind::Vector || bind == Bind::Matrix;
}

double extent_or_usual(const Expr& e) {
  const auto upper = static_cast<double>(e.upper());
  return upper <= kNearBound || e.is_constant() ? std::max(upper, 0.0)
                                                : std::max(kUsual, static_cast<double>(e.lower()));
}

/// The stride of an index that is not affine in an axis: 1 where neighbours lie so near each other,
/// as those of `i // 2` do, that shuffles of a few vectors load them.
double uneven_stride(const Region& region, const Target& target, const Stage& stage,
                     const Load& load, int axis) {
  constexpr std::int64_t kPlaces = 16, kNear = 3;
  constexpr double kFar = 1e6;
  const auto access = target.is_gpu() ? std::nullopt : access_of(region, stage, load);
  const auto extent = region.axes[std::size_t(axis)].extent.constant();
  if (!access || !extent)
    return kFar;
  for (const Expr& v : variables_of(access->offset))
    if (!v.is_axis())
      return kFar;
  const auto at = [&](std::int64_t place) {
    return evaluate(access->offset,
                    [&](const Expr& v) { return v.axis_number() == axis ? place : 0; });
  };
  for (std::int64_t i = 1; i < std::min(*extent, kPlaces); ++i)
    if (std::abs(at(i) - at(i - 1)) > kNear)
      return kFar;
  return 1;
}

} // namespace

Estimator::Estimator(const Region& region, const Target& target)
    : region_(region), target_(target) {
  for (const Axis& axis : region.axes)
    extents_.push_back(std::max(1.0, extent_or_usual(axis.extent)));
}

// Loads of stages are at the same point: a stage that a body computes is computed once, however
// many of its stages read it. `counted`: bodies, and stages that are part of the cost already.
void Estimator::describe(int s, StageCost& cost, std::vector<bool>& counted,
                         const std::vector<bool>& bodies) const {
  const Stage& stage = region_.stages[std::size_t(s)];
  cost.flops += flops_of(stage);
  for (const Load& load : stage.loads) {
    if (load.source == Source::Stage && !bodies[std::size_t(load.number)]) {
      if (!counted[std::size_t(load.number)]) {
        counted[std::size_t(load.number)] = true;
        describe(load.number, cost, counted, bodies);
      }
      continue;
    }
    Access access;
    access.stride.assign(region_.axes.size(), 0);
    if (load.source == Source::Operand) {
      const Operand& operand = region_.operands[std::size_t(load.number)];
      access.operand = load.number;
      access.bytes = static_cast<double>(size_of(operand.dtype));
      const std::vector<bool> depends = axes_of_load(region_, stage, load);
      for (const int a : stage.axes)
        if (depends[std::size_t(a)]) {
          const auto stride = stride_of(region_, stage, load, a);
          access.stride[std::size_t(a)] = stride && *stride != 0
                                              ? std::abs(static_cast<double>(*stride))
                                              : uneven_stride(region_, target_, stage, load, a);
        }
    } else {
      const Stage& made = region_.stages[std::size_t(load.number)];
      access.bytes = static_cast<double>(size_of(made.yield_dtypes[std::size_t(load.component)]));
      const std::vector<int> axes = result_axes(made);
      for (std::size_t i = 0; i < axes.size(); ++i)
        access.stride[std::size_t(axes[i])] = i + 1 == axes.size() ? 1 : 1e4;
    }
    cost.accesses.push_back(std::move(access));
  }
}

void Estimator::set_bodies(const Tree& tree) {
  std::vector<bool> bodies(region_.stages.size(), false);
  const auto find = [&](const auto& self, const Tree& t) -> void {
    if (t.kind == Kind::Body && t.stage >= 0 && std::size_t(t.stage) < bodies.size())
      bodies[std::size_t(t.stage)] = true;
    if (t.first)
      self(self, *t.first);
    if (t.rest)
      self(self, *t.rest);
  };
  find(find, tree);
  if (bodies == bodies_)
    return;
  bodies_ = bodies;
  stages_.assign(region_.stages.size(), {});
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    if (!bodies[s])
      continue;
    std::vector<bool> counted = bodies;
    describe(static_cast<int>(s), stages_[s], counted, bodies);
    const Stage& stage = region_.stages[s];
    if (!readers_of(region_, static_cast<int>(s)).empty()) {
      Access access;
      access.written = true;
      access.bytes = static_cast<double>(size_of(stage.yield_dtypes[0]));
      access.stride.assign(region_.axes.size(), 0);
      const std::vector<int> axes = result_axes(stage);
      for (std::size_t i = 0; i < axes.size(); ++i)
        access.stride[std::size_t(axes[i])] = i + 1 == axes.size() ? 1 : 1e4;
      stages_[s].accesses.push_back(std::move(access));
    }
    for (const Output& out : region_.outputs)
      if (out.stage == static_cast<int>(s)) {
        Access access;
        access.written = access.leaves = true;
        access.bytes = static_cast<double>(size_of(out.dtype));
        access.stride.assign(region_.axes.size(), 0);
        for (const int a : result_axes(stage)) {
          const auto stride = stride_of(region_, out, a);
          access.stride[std::size_t(a)] = stride ? std::abs(static_cast<double>(*stride)) : 1e6;
        }
        stages_[s].accesses.push_back(std::move(access));
      }
  }
}

// Bytes that come through a cache of this size: what the inner loops that fit into it touch, as
// often as the loops around them bring something else.
double Estimator::traffic(const StageCost& cost, std::span<const LoopAround> loops,
                          std::size_t shared, double cache, std::size_t together) const {
  const std::size_t axes = extents_.size();
  std::vector<double> local(axes, 1), piece(axes, 1); // of all loops so far; inside of the shared
  auto footprint = [&](const Access& access) {
    const std::vector<double>& gone = access.operand < 0 && !access.leaves ? piece : local;
    double elements = 1, run = 1;
    for (std::size_t a = 0; a < axes; ++a)
      if (access.stride[a] != 0) {
        const double n = std::min(gone[a], extents_[a]);
        elements *= n;
        if (access.stride[a] == 1)
          run = std::max(run, n);
      }
    return elements / run * std::ceil(run * access.bytes / kLine) * kLine;
  };
  std::vector<double> inside(cost.accesses.size());
  for (std::size_t i = 0; i < inside.size(); ++i)
    inside[i] = footprint(cost.accesses[i]);
  std::size_t fits = loops.size(); // the loops from here on
  while (fits > 0) {
    local[std::size_t(loops[fits - 1].axis)] *= loops[fits - 1].trips;
    if (fits > shared)
      piece[std::size_t(loops[fits - 1].axis)] *= loops[fits - 1].trips;
    double sum = 0;
    std::vector<double> next(inside.size());
    for (std::size_t i = 0; i < next.size(); ++i)
      sum += next[i] = footprint(cost.accesses[i]);
    if (sum > cache && fits <= together)
      break;
    inside = std::move(next);
    --fits;
  }
  double bytes = 0;
  for (std::size_t i = 0; i < inside.size(); ++i) {
    const Access& access = cost.accesses[i];
    double times = 1;
    bool stays = true;
    const bool own = access.operand < 0 && !access.leaves;
    for (std::size_t l = fits; l-- > 0;) {
      stays = stays && (access.stride[std::size_t(loops[l].axis)] == 0 || (own && l < shared));
      if (!stays)
        times *= loops[l].trips;
    }
    bytes += inside[i] * times * (access.written ? 2 : 1);
  }
  return bytes;
}

// A product takes 16 cycles, a load of a tile half of that when it is near. Factors that are
// neither copied into tiles nor lie as one are put together for each product.
double Estimator::tile_cycles(const StageCost& cost, std::span<const LoopAround> loops,
                              std::span<const NearAround> near) const {
  std::vector<LoopAround> unit;
  double products = 1, tiles = 1;
  bool held = true;
  for (const LoopAround& loop : loops) {
    if (loop.bind == Bind::Matrix) {
      unit.push_back(loop);
      continue;
    }
    products *= loop.trips;
  }
  if (target_.unit(FragmentLayout::Tiles) == nullptr || unit.size() != 3 ||
      unit[0].trips != kTileRows || unit[1].trips != kTileBytes / 4 ||
      unit[2].trips != kTileBytes / 2)
    return -1;
  const auto depends = [](const Access& access, int axis) {
    return access.stride[std::size_t(axis)] != 0;
  };
  double cycles = 16 * products;
  for (const Access& access : cost.accesses) {
    double times = 1;
    for (const LoopAround& loop : loops)
      if (loop.bind != Bind::Matrix && (depends(access, loop.axis) || !written_out(loop.bind)))
        times *= access.written && loop.inside_sum && !depends(access, loop.axis) ? 1 : loop.trips;
    if (access.written) {
      cycles += times * kTileRows * 2;
      continue;
    }
    const bool left = depends(access, unit[0].axis);
    const bool copied = std::any_of(
        near.begin(), near.end(), [&](const NearAround& n) { return n.operand == access.operand; });
    const bool lies = left && access.stride[std::size_t(unit[2].axis)] == 1;
    cycles += times * (copied ? 4 : lies ? 8 : 150);
  }
  for (const LoopAround& loop : loops)
    if (loop.inside_sum && loop.bind != Bind::Matrix && loop.axis != unit[2].axis) {
      held = held && written_out(loop.bind);
      tiles *= loop.trips;
    }
  if (!held || tiles + 2 > kTiles)
    cycles += 40 * products;
  return cycles;
}

namespace {

/// Instructions for an element of a block of `side` vectors that is transposed in registers: of
/// `lanes` elements each a load and the rounds of shuffles.
double transposing(double side, double lanes) {
  return (1 + std::log2(std::max(side, 1.0))) / lanes;
}

/// Columns of the blocks in which rows go through registers that lie across the lanes of a vector
/// loop: the loops along an axis in which the access is contiguous are inside of it. 0: it is none.
double block_of_rows(const Estimator::Access& access, std::span<const LoopAround> loops) {
  const LoopAround* lane = nullptr;
  double row = 1;
  for (const LoopAround& loop : loops) {
    const double stride = access.stride[std::size_t(loop.axis)];
    if (loop.bind == Bind::Vector)
      lane = stride > 1 ? &loop : nullptr;
    else if (lane && stride == 1)
      row *= loop.trips;
  }
  return lane && row > 1 ? std::exp2(std::floor(std::log2(std::min(row, lane->trips)))) : 0;
}

/// Instructions for an element of a copy: one, or where a block of as many unrolled rows as lanes
/// is transposed in registers, a vector's load and shuffles for all lanes of a row.
double copying_element(const Estimator::Access& access, std::span<const LoopAround> inside) {
  const LoopAround *row = nullptr, *lane = nullptr;
  if (const double columns = block_of_rows(access, inside); columns > 0) // and stored
    return transposing(columns, columns) + 1 / columns;
  for (const LoopAround& loop : inside) {
    if (access.stride[std::size_t(loop.axis)] == 0 || loop.trips <= 1)
      continue;
    const LoopAround*& place = loop.bind == Bind::Vector ? lane : row;
    if (place || (loop.bind != Bind::Vector && loop.bind != Bind::Unroll))
      return 1;
    place = &loop;
  }
  if (!row || !lane || row->trips != lane->trips || access.stride[std::size_t(row->axis)] != 1)
    return 1;
  return transposing(lane->trips, lane->trips);
}

} // namespace

double Estimator::body_seconds(int s, std::span<const LoopAround> loops,
                               std::span<const NearAround> near, std::size_t shared_loops,
                               double accumulators) const {
  if (target_.threads > 0)
    return gpu_body_seconds(s, loops, near, shared_loops);
  const Stage& stage = region_.stages[std::size_t(s)];
  StageCost cost = stages_[std::size_t(s)];
  double copying = 0;
  for (Access& access : cost.accesses)
    for (const NearAround& copy : near) {
      if (access.operand < 0 || access.operand != copy.operand)
        continue;
      double elements = 1; // of all copies; each lies in the order of the loops inside
      int innermost = -1;
      for (std::size_t l = 0; l < loops.size(); ++l) {
        const bool depends = access.stride[std::size_t(loops[l].axis)] != 0;
        if (depends || l < copy.loops)
          elements *= loops[l].trips;
        if (depends)
          innermost = loops[l].axis;
      }
      const std::span<const LoopAround> inside = loops.subspan(copy.loops);
      copying += elements * copying_element(access, inside);
      for (const LoopAround& loop : inside)
        if (loop.bind == Bind::Vector && block_of_rows(access, inside) > 0)
          innermost = loop.axis;
      if (innermost >= 0)
        access.stride[std::size_t(innermost)] = 1;
    }
  double points = 1, overhead = 0, lanes = 1, chains = 1, shared = 1, copies = 1;
  int vector_axis = -1;
  bool sum_in_memory = false;
  int matrices = 0;
  for (const LoopAround& loop : loops) {
    points *= loop.trips;
    const bool reduced = contains(stage.over, loop.axis);
    Bind bind = loop.bind;
    if (bind == Bind::Matrix) { // rows, vectors of columns, pairs of terms
      ++matrices;
      bind = matrices == 1 ? Bind::Unroll : matrices == 2 ? Bind::Vector : Bind::Serial;
    }
    switch (bind) {
    case Bind::Vector:
      lanes = loop.trips;
      vector_axis = loop.axis;
      break;
    case Bind::Unroll:
      copies *= loop.trips;
      if (!reduced)
        chains *= loop.trips;
      break;
    case Bind::Core:
      shared *= loop.trips;
      break;
    default:
      break;
    }
    if (!written_out(loop.bind)) {
      overhead += points;
      if (loop.inside_sum && !reduced && loop.trips > 1)
        sum_in_memory = true;
    }
  }
  const double steps = points / lanes / (matrices > 0 ? 2 : 1); // of vectors
  const double width = std::max(1.0, lanes * static_cast<double>(size_of(stage.acc_dtype)) /
                                         std::max(8, target_.vector_bytes));
  double cycles = 0.5 * width * steps * std::max(1.0, cost.flops);
  if (stage.kind != StageKind::Map) {
    chains *= accumulators;
    const double each = sum_in_memory ? 1.0 : kLatency / chains;
    cycles = std::max(cycles, steps * each * width);
    if (sum_in_memory)
      cycles += steps * 1.5 * width;
    if (vector_axis >= 0 && contains(stage.over, vector_axis)) {
      double sums = 1; // each combines its lanes at the end
      for (const LoopAround& loop : loops)
        if (!contains(stage.over, loop.axis) || !loop.inside_sum)
          sums *= loop.trips;
      cycles += sums * 1.5 * std::log2(std::max(2.0, lanes));
    }
  }
  if (stage.kind == StageKind::Scan)
    cycles += steps * kLatency;
  // Reads and writes: once for all loops inside that they do not depend on.
  double values = 0;
  for (const Access& access : cost.accesses) {
    double times = 1, held = 1;
    bool hoisted = true;
    for (std::size_t l = loops.size(); l-- > 0;) {
      const LoopAround& loop = loops[l];
      const bool depends = access.stride[std::size_t(loop.axis)] != 0;
      if (loop.bind == Bind::Vector || (loop.bind == Bind::Matrix && loop.axis == vector_axis))
        continue;
      if (depends) {
        hoisted = false;
        times *= loop.trips;
        if (written_out(loop.bind))
          held *= loop.trips;
      } else if (!hoisted && !written_out(loop.bind) && !access.written)
        times *= loop.trips;
    }
    values += held;
    double each = 0.5;
    if (vector_axis >= 0) {
      const double stride = access.stride[std::size_t(vector_axis)];
      each = stride == 0 ? 0.5 : stride == 1 ? 0.5 * width : 0.75 * lanes;
      if (const double columns = access.leaves ? block_of_rows(access, loops) : 0; columns > 0)
        each = 0.5 * width + lanes * transposing(columns, columns) / 2; // to scratch memory first
      if (access.written)
        each *= 2;
    }
    // Both terms of a pair come by themselves and are put together.
    cycles += times * (matrices > 0 && !access.written ? each + 0.75 : each);
  }
  // What does not fit the registers comes and goes.
  const double registers = chains * width + std::min(values, copies) * width + 1;
  if (registers > target_.vector_registers)
    cycles += steps * width * (registers - target_.vector_registers) / registers * 2;
  double copied = 1; // cycles of an element that is copied
  if (const double tiles = tile_cycles(cost, loops, near); tiles >= 0) {
    cycles = tiles;
    copied = 0.15;
  }
  cycles += overhead / std::max(1.0, copies) * 0.5 + copying * copied;

  const double workers = std::max(1, target_.workers);
  const double used = shared / std::ceil(shared / workers);
  const double per_core = cycles / used;
  const double from_l2 = traffic(cost, loops, shared_loops,
                                 0.75 * static_cast<double>(target_.l1_bytes), loops.size()) /
                         kL2Bytes / used;
  const double from_l3 = traffic(cost, loops, shared_loops,
                                 0.75 * static_cast<double>(target_.l2_bytes), loops.size()) /
                         kL3Bytes / used;
  const double from_memory = traffic(cost, loops, shared_loops,
                                     0.5 * static_cast<double>(target_.l3_bytes), loops.size()) /
                             kMemoryBytes / std::min(used, kFeeds);
  const double slowest = std::max({per_core, from_l2, from_l3, from_memory});
  return (slowest + 0.2 * (per_core + from_l2 + from_l3 + from_memory - slowest)) / kClock;
}

double Estimator::trips_of(const Tree& loop) const {
  return loop.extent.is_constant()
             ? std::max(1.0, static_cast<double>(loop.extent.value()))
             : std::ceil(extents_[std::size_t(loop.axis)] / static_cast<double>(loop.step));
}

double Estimator::walk(const Tree& t, std::vector<LoopAround>& loops, std::vector<SumAround>& sums,
                       std::vector<NearAround>& near, std::size_t shared) const {
  switch (t.kind) {
  case Kind::Body: {
    std::vector<LoopAround> own = loops;
    double accumulators = 1;
    for (const SumAround& sum : sums)
      if (sum.stage == t.stage) {
        accumulators = double(sum.accumulators);
        for (std::size_t l = sum.loops; l < own.size(); ++l)
          own[l].inside_sum = true;
      }
    return body_seconds(t.stage, own, near, shared, accumulators);
  }
  case Kind::For: {
    loops.push_back({t.axis, trips_of(t), t.bind, false});
    const double seconds = walk(*t.rest, loops, sums, near, shared);
    loops.pop_back();
    return seconds;
  }
  case Kind::Accumulate: {
    sums.push_back({t.stage, loops.size(), t.step});
    const double seconds = walk(*t.rest, loops, sums, near, shared);
    sums.pop_back();
    return seconds;
  }
  case Kind::Near: {
    near.push_back({t.operand, loops.size()});
    const double seconds = walk(*t.rest, loops, sums, near, shared);
    near.pop_back();
    return seconds;
  }
  case Kind::Prefetch:
  case Kind::Mask:
    return walk(*t.rest, loops, sums, near, shared);
  case Kind::Collapse: {
    // The last points of the nest go to threads, those before them to a thread's copies.
    std::vector<LoopAround> blocks, copies, lanes;
    const Tree* inside = t.rest.get();
    for (; inside->kind == Kind::For && inside->bind == Bind::Grid; inside = inside->rest.get())
      blocks.push_back({inside->axis, trips_of(*inside), Bind::Grid, false});
    const auto take = [&](double left, Bind bind, std::vector<LoopAround>& into) {
      for (std::size_t l = blocks.size(); l-- > 0 && left > 1;) {
        const double n = std::min(left, blocks[l].trips);
        into.insert(into.begin(), {blocks[l].axis, n, bind, false});
        blocks[l].trips = std::max(1.0, blocks[l].trips / n);
        left /= n;
      }
    };
    take(static_cast<double>(t.step), Bind::Lane, lanes);
    take(static_cast<double>(t.extent.value()), Bind::Unroll, copies);
    const std::size_t before = loops.size();
    for (const auto* part : {&blocks, &copies, &lanes})
      loops.insert(loops.end(), part->begin(), part->end());
    const double seconds = walk(*inside, loops, sums, near, shared);
    loops.resize(before);
    return seconds;
  }
  case Kind::Then: {
    const double first = walk(*t.first, loops, sums, near, loops.size());
    return first + walk(*t.rest, loops, sums, near, loops.size()) +
           (loops.empty() ? kLaunchSeconds : 0);
  }
  }
  return 0;
}

double Estimator::part_seconds(const Tree& part) const {
  std::vector<LoopAround> loops;
  std::vector<SumAround> sums;
  std::vector<NearAround> near;
  return walk(part, loops, sums, near, 0);
}

double Estimator::seconds(const Tree& tree) {
  set_bodies(tree);
  return kLaunchSeconds + part_seconds(tree);
}

} // namespace egret::kernel::loops
