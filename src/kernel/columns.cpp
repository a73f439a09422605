// Regions that reduce over one set of axes, in two families. Columns: lanes along a parallel axis
// (bias gradients, short rows, windows). Pieces: columns, or rows with lanes along a reduced axis,
// with the reduction split into a fixed number of pieces, for few results and much to sum (losses,
// gradient norms).
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/knobs.h"
#include "kernel/map_axes.h"
#include "kernel/reduce_axes.h"
#include "kernel/reduce_nest.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// Elements that one piece of a split reduction has at the least, and the largest number of pieces.
constexpr std::int64_t kLeastPiece = 32768, kMostPieces = 128;
/// Work per turn of a worker, in elements.
constexpr std::int64_t kTurn = 8192;
/// Tiles that are enough to go without splitting.
constexpr std::int64_t kEnoughTiles = 16;
/// Lanes along the reduced axis.
ReduceShape row_shape(const Region& region, const ReduceAxes& facts, const Schedule& schedule,
                      const Target& target) {
  ReduceShape shape;
  std::int64_t bytes = schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes;
  shape.lanes = lanes_for(region, all_stages(region), bytes);
  shape.inner_axis = facts.reduced_axis;
  shape.tile_axis = facts.passes.parallel.empty() ? -1 : facts.passes.parallel.back();
  std::int64_t length = about(region.axes[shape.inner_axis].extent);
  std::int64_t vectors = std::max<std::int64_t>(1, length / shape.lanes);
  // A short row is straight code whose values stay in registers from pass to pass.
  shape.copies = int(schedule.knob("copies", vectors <= 8 ? vectors : 4));
  // Much arithmetic hides latency by itself, and less code compiles faster.
  shape.heavy_copies = vectors <= 8 ? shape.copies : std::max(1, shape.copies / 2);
  // The steps that combine the lanes of one row overlap with those of the next.
  std::int64_t rows = vectors <= 2 ? 4 : vectors <= 8 ? 2 : 1;
  shape.points = int(shape.tile_axis < 0 ? 1 : schedule.knob("rows", rows));
  std::int64_t row = about(points_of(region, facts.passes.reduced));
  shape.chunk = std::max<std::int64_t>(1, kTurn / std::max<std::int64_t>(1, row * shape.points)) *
                shape.points;
  return shape;
}

/// Lanes along a parallel axis.
ReduceShape column_shape(const Region& region, const ReduceAxes& facts, const Schedule& schedule,
                         const Target& target) {
  ReduceShape shape;
  std::int64_t bytes = schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes;
  shape.lanes_parallel = true;
  shape.lanes = lanes_for(region, all_stages(region), bytes);
  shape.tile_axis = facts.parallel_axis;
  shape.inner_axis = facts.passes.reduced.back();
  std::int64_t width = about(region.axes[shape.tile_axis].extent);
  std::int64_t vectors = std::clamp<std::int64_t>(width / shape.lanes, 1, 4);
  shape.points = int(schedule.knob("vectors", vectors));
  shape.copies = int(schedule.knob("copies", shape.points >= 4 ? 1 : 4 / shape.points));
  shape.heavy_copies = shape.copies;
  std::int64_t tile = std::int64_t(shape.points) * shape.lanes;
  std::int64_t depth = about(points_of(region, facts.passes.reduced));
  shape.chunk = std::max<std::int64_t>(1, kTurn / std::max<std::int64_t>(1, depth * tile)) * tile;
  return shape;
}

/// Values are kept from pass to pass while a row of them fits into half of the second-level cache.
void set_common(ReduceShape& shape, const Region& region, const ReduceAxes& facts,
                const Schedule& schedule, const Target& target) {
  shape.arithmetic = arithmetic_of(target);
  shape.store_policy = schedule.store_policy;
  std::int64_t scratch = about(points_of(region, facts.passes.reduced)) * 4 * shape.points *
                         (shape.lanes_parallel ? shape.lanes : 1);
  bool fits = scratch <= target.l2_bytes / 2;
  shape.keep_flops = double(schedule.knob("keep", fits ? 12 : 1 << 20));
}

/// Iterations that unsplit tiles would give to the workers.
std::int64_t tiles_of(const Region& region, const ReduceAxes& facts, const ReduceShape& shape) {
  std::int64_t n = 1;
  for (int a : facts.passes.parallel) {
    std::int64_t extent = about(region.axes[a].extent);
    n *= a == shape.tile_axis ? (extent + shape.chunk - 1) / shape.chunk : extent;
    n = std::min<std::int64_t>(n, std::int64_t(1) << 30);
  }
  return n;
}

constexpr Knob kReduceKnobs[] = {
    {"copies", 1, 16}, {"rows", 1, 8}, {"vectors", 1, 16}, {"keep", 0, 1 << 20}, {"windows", 0, 1}};

class ColumnsGenerator : public Generator {
public:
  std::string name() const override { return "columns"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    ReduceAxes facts(region);
    if (!facts.passes.reason.empty() || facts.parallel_axis < 0)
      return {};
    std::vector<Schedule> out;
    for (int vectors : {0, 1, 2, 8}) {
      Schedule s;
      s.generator = name();
      if (vectors)
        s.knobs["vectors"] = vectors;
      out.push_back(std::move(s));
    }
    for (auto [vectors, copies] : {std::pair{4, 2}, {2, 1}, {2, 4}, {1, 1}, {1, 8}}) {
      Schedule s;
      s.generator = name();
      s.knobs["vectors"] = vectors;
      s.knobs["copies"] = copies;
      out.push_back(std::move(s));
    }
    if (!staged_windows_of(region, facts, target).empty()) {
      Schedule in_place;
      in_place.generator = name();
      in_place.knobs["windows"] = 0;
      out.push_back(std::move(in_place));
    }
    return out;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    ReduceAxes facts(region);
    if (!facts.passes.reason.empty())
      return {false, {}, facts.passes.reason};
    if (auto why = refused_settings(schedule, target, kReduceKnobs); !why.empty())
      return {false, {}, why};
    if (facts.parallel_axis < 0)
      return {false, {}, "has no parallel axis for lanes"};
    ReduceShape shape = column_shape(region, facts, schedule, target);
    if (schedule.knob("windows", 1) != 0)
      shape.windows = staged_windows_of(region, facts, target);
    set_common(shape, region, facts, schedule, target);
    return {true, lower_reduction(region, facts.passes, shape), ""};
  }

  /// Operands whose neighbours in memory are not reduced together, turned: whole rows then.
  std::vector<LayoutWish> layouts(const Region& region, const Target&) const override {
    ReduceAxes facts(region);
    if (!facts.passes.reason.empty() || facts.parallel_axis < 0)
      return {};
    std::vector<LayoutWish> wishes;
    for (const Stage& stage : region.stages) {
      if (stage.kind != StageKind::Reduce)
        continue;
      for (const Load& load : stage.loads) {
        const auto memory = axes_in_memory(region, stage, load);
        if (!memory || memory->empty() || region.axes[memory->back()].reduction)
          continue;
        LayoutWish wish{load.number, {}, "order along the reduced axes"};
        std::vector<Digit> reduced;
        for (std::size_t i = 0; i < memory->size(); ++i) {
          const Axis& axis = region.axes[(*memory)[i]];
          wish.layout.box.push_back(axis.extent.value());
          (axis.reduction ? reduced : wish.layout.digits).push_back({int(i), 0});
        }
        wish.layout.digits.insert(wish.layout.digits.end(), reduced.begin(), reduced.end());
        if (!reduced.empty())
          wishes.push_back(std::move(wish));
      }
    }
    return wishes;
  }
};

class PiecesGenerator : public Generator {
public:
  std::string name() const override { return "pieces"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    ReduceAxes facts(region);
    if (!facts.passes.reason.empty() || facts.reduced_score + facts.parallel_score <= -1000)
      return {};
    std::int64_t points = about(points_of(region, facts.passes.parallel));
    std::int64_t all =
        points * std::min(about(points_of(region, facts.passes.reduced)),
                          (std::int64_t(1) << 40) / std::max<std::int64_t>(1, points));
    ReduceShape shape = shape_for(region, facts, Schedule{}, target);
    if (all < 4 * kLeastPiece || tiles_of(region, facts, shape) >= kEnoughTiles)
      return {};
    Schedule s;
    s.generator = name();
    // The number of pieces follows from the region alone, so that results do not depend on the
    // workers.
    s.split_reduce = std::clamp<std::int64_t>(all / kLeastPiece, 2, kMostPieces);
    s.store_policy = usual_store_policy(region, target);
    std::vector<Schedule> out{s};
    const std::int64_t usual = s.split_reduce;
    for (std::int64_t pieces : {usual / 4, usual / 2, 2 * usual}) {
      s.split_reduce = std::max<std::int64_t>(2, pieces);
      if (std::find(out.begin(), out.end(), s) == out.end())
        out.push_back(s);
    }
    return out;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    ReduceAxes facts(region);
    if (!facts.passes.reason.empty())
      return {false, {}, facts.passes.reason};
    if (auto why = refused_settings(schedule, target, kReduceKnobs); !why.empty())
      return {false, {}, why};
    if (schedule.split_reduce < 2)
      return {false, {}, "pieces need @split_reduce of 2 at least"};
    ReduceShape shape = shape_for(region, facts, schedule, target);
    set_common(shape, region, facts, schedule, target);
    for (int a : facts.passes.reduced)
      if (shape.split_axis < 0 ||
          about(region.axes[a].extent) > about(region.axes[shape.split_axis].extent))
        shape.split_axis = a;
    auto extent = region.axes[shape.split_axis].extent.constant();
    if (!extent)
      return {false, {}, "the axis to cut has no constant extent"};
    if (facts.argmax && shape.split_axis != facts.passes.reduced.front())
      return {false, {}, "argmax is cut along its first axis only"};
    bool along_lanes = !shape.lanes_parallel && shape.split_axis == shape.inner_axis;
    std::int64_t unit = along_lanes ? std::int64_t(shape.lanes) * shape.copies : 1;
    std::int64_t piece = (*extent + schedule.split_reduce - 1) / schedule.split_reduce;
    shape.piece = std::max<std::int64_t>(unit, (piece + unit - 1) / unit * unit);
    shape.pieces = (*extent + shape.piece - 1) / shape.piece;
    if (shape.pieces < 2)
      return {false, {}, "too short to be cut"};
    return {true, lower_reduction(region, facts.passes, shape), ""};
  }

private:
  static ReduceShape shape_for(const Region& region, const ReduceAxes& facts,
                               const Schedule& schedule, const Target& target) {
    return prefers_rows(facts, region, target) ? row_shape(region, facts, schedule, target)
                                               : column_shape(region, facts, schedule, target);
  }
};

} // namespace

const Generator& columns_generator() {
  static const ColumnsGenerator generator;
  return generator;
}

const Generator& pieces_generator() {
  static const PiecesGenerator generator;
  return generator;
}

} // namespace egret::kernel
