// Regions that reduce over one set of axes, in three families. Rows: lanes along the reduced axis,
// a worker does whole rows (softmax, norms, losses). Columns: lanes along a parallel axis (bias
// gradients, short rows). Pieces: either of them with the reduction cut into a fixed number of
// pieces, for few rows or columns and much to sum (losses, gradient norms).
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/knobs.h"
#include "kernel/map_axes.h"
#include "kernel/picks.h"
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
/// Pieces of work that copying windows leaves for each worker at the least.
constexpr std::int64_t kTasks = 4;
/// Points of an axis that are too few for its lanes.
constexpr std::int64_t kShort = 5;

/// What the families know of a region before they choose.
struct Facts {
  Passes passes;
  int reduced_axis = -1;  ///< best reduced axis for lanes, with its score
  int parallel_axis = -1; ///< best parallel axis for lanes
  double reduced_score = 0, parallel_score = 0;
  bool argmax = false;
  double flops = 1; ///< of a point

  explicit Facts(const Region& region, Online online = Online::No)
      : passes(plan_passes(region, false, online)) {
    if (!passes.reason.empty())
      return;
    std::vector<int> stages;
    for (std::size_t s = 0; s < region.stages.size(); ++s) {
      stages.push_back(int(s));
      const Stage& stage = region.stages[s];
      argmax = argmax || (stage.kind == StageKind::Reduce && stage.monoid == Monoid::ArgMax);
      flops += flops_of(stage);
    }
    reduced_axis = passes.reduced.back();
    reduced_score = vector_score(region, stages, reduced_axis, passes.reduced);
    for (int a : passes.reduced)
      // Places must come in ascending order, so that argmax can only run along the last axis.
      if (auto s = vector_score(region, stages, a, passes.reduced); s > reduced_score && !argmax) {
        reduced_axis = a;
        reduced_score = s;
      }
    bool is_long = false;
    for (int a : passes.parallel) {
      bool apart = std::all_of(region.outputs.begin(), region.outputs.end(),
                               [&](const Output& o) { return stride_of(region, o, a) != 0; });
      // Lanes behind the end of a short axis, such as a window's, do nothing.
      const bool fills = about(region.axes[a].extent) >= kShort;
      if (auto s = vector_score(region, stages, a, passes.reduced);
          apart &&
          (parallel_axis < 0 || (fills && !is_long) || (fills == is_long && s >= parallel_score))) {
        parallel_axis = a;
        parallel_score = s;
        is_long = fills;
      }
    }
  }
};

/// Lanes along the reduced axis.
ReduceShape row_shape(const Region& region, const Facts& facts, const Schedule& schedule,
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
ReduceShape column_shape(const Region& region, const Facts& facts, const Schedule& schedule,
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

/// Long rows are read in one pass and worked on in the next: the pass with the most arithmetic
/// fetches the next row meanwhile.
int prefetch_pass(const ReduceShape& shape, const Region& region, const Facts& facts,
                  const Schedule& schedule, const Target& target) {
  std::int64_t row = about(points_of(region, facts.passes.reduced)) * 4 * shape.points;
  bool useful = row >= 2048 && row <= target.l2_bytes / 4;
  if (shape.lanes_parallel || shape.pieces > 1 || shape.tile_axis < 0 || facts.passes.count < 2 ||
      !schedule.knob("prefetch", useful))
    return -1;
  std::vector<double> flops = flops_by_pass(region, facts.passes);
  auto best = std::max_element(flops.begin(), flops.end());
  return best == flops.begin() ? -1 : int(best - flops.begin());
}

/// Values are kept from pass to pass while a row of them fits into half of the second-level cache.
void set_common(ReduceShape& shape, const Region& region, const Facts& facts,
                const Schedule& schedule, const Target& target) {
  shape.arithmetic = arithmetic_of(target);
  shape.store_policy = schedule.store_policy;
  std::int64_t scratch = about(points_of(region, facts.passes.reduced)) * 4 * shape.points *
                         (shape.lanes_parallel ? shape.lanes : 1);
  bool fits = scratch <= target.l2_bytes / 2;
  shape.prefetch_pass = prefetch_pass(shape, region, facts, schedule, target);
  shape.keep_flops = double(schedule.knob("keep", fits ? 12 : 1 << 20));
}

/// Iterations that unsplit tiles would give to the workers.
std::int64_t tiles_of(const Region& region, const Facts& facts, const ReduceShape& shape) {
  std::int64_t n = 1;
  for (int a : facts.passes.parallel) {
    std::int64_t extent = about(region.axes[a].extent);
    n *= a == shape.tile_axis ? (extent + shape.chunk - 1) / shape.chunk : extent;
    n = std::min<std::int64_t>(n, std::int64_t(1) << 30);
  }
  return n;
}

/// What a nest with lanes along the parallel axis reads from copies.
StagedWindows windows_of(const Region& region, const Facts& facts, const Target& target) {
  const std::int64_t tasks = target.workers > 1 ? kTasks * target.workers : 1;
  return find_staged_windows(region, facts.passes, facts.parallel_axis, target.l2_bytes / 2, tasks);
}

bool prefers_rows(const Facts& facts, const Region& region, const Target& target) {
  if (!windows_of(region, facts, target).inner.empty())
    return false;
  int lanes = lanes_for(region, all_stages(region), target.vector_bytes);
  bool short_rows = about(region.axes[facts.reduced_axis].extent) * 2 < lanes;
  if (facts.passes.parallel.empty() || facts.parallel_axis < 0)
    return true;
  return facts.reduced_score >= facts.parallel_score && !(short_rows && facts.parallel_score >= 0);
}

constexpr Knob kRowsKnobs[] = {{"copies", 1, 16},  {"rows", 1, 8},       {"vectors", 1, 16},
                               {"prefetch", 0, 1}, {"keep", 0, 1 << 20}, {"online", 0, 2},
                               {"windows", 0, 1}};

class RowsGenerator : public Generator {
public:
  std::string name() const override { return "rows"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    Facts facts(region);
    if (!facts.passes.reason.empty() || !prefers_rows(facts, region, target))
      return {};
    std::vector<Schedule> out;
    CachePolicy usual = usual_store_policy(region, target);
    CachePolicy other =
        usual == CachePolicy::Default ? CachePolicy::Streaming : CachePolicy::Default;
    // A row that does not stay in the cache comes from memory for every pass.
    if (const Online online = fewest_passes(region, facts.passes.count); online != Online::No) {
      const bool stays = about(points_of(region, facts.passes.reduced)) * 4 <= target.l2_bytes / 2;
      for (int copies : {8, 4}) {
        Schedule s;
        s.generator = name();
        s.store_policy = usual;
        s.knobs["online"] = std::int64_t(online);
        s.knobs["copies"] = copies;
        if (!stays || copies == 8)
          out.push_back(std::move(s));
      }
      if (stays) { // it is one candidate of many
        std::vector<Schedule> rest = std::move(out);
        out = space_of(usual, other, target);
        out.insert(out.end(), rest.begin(), rest.end());
        return out;
      }
    }
    const std::vector<Schedule> plain = space_of(usual, other, target);
    out.insert(out.end(), plain.begin(), plain.end());
    return out;
  }

  std::vector<Schedule> space_of(CachePolicy usual, CachePolicy other, const Target& target) const {
    std::vector<Schedule> out;
    for (CachePolicy policy : {usual, other})
      for (int rows : {0, 1, 2, 4})
        for (int prefetch : {-1, 0, 1}) {
          Schedule s;
          s.generator = name();
          s.store_policy = policy;
          if (rows)
            s.knobs["rows"] = rows;
          if (prefetch >= 0)
            s.knobs["prefetch"] = prefetch;
          out.push_back(std::move(s));
        }
    Schedule plain;
    plain.generator = name();
    plain.store_policy = usual;
    // More or fewer accumulators, and what is worth keeping from pass to pass: all, or nothing.
    for (auto [knob, value] :
         {std::pair{"copies", 2}, {"copies", 8}, {"keep", 0}, {"keep", 1 << 20}}) {
      Schedule s = plain;
      s.knobs[knob] = value;
      out.push_back(std::move(s));
    }
    if (target.vector_bytes > 16) {
      plain.vector_bytes = target.vector_bytes / 2;
      out.push_back(plain);
    }
    return out;
  }

  Lowered lower(const Region& whole, const Schedule& schedule,
                const Target& target) const override {
    if (auto why = refused_settings(schedule, target, kRowsKnobs); !why.empty())
      return {false, {}, why};
    const auto online = Online(schedule.knob("online", 0));
    const Region region = online != Online::No ? with_picks(whole, PickBy::Load) : whole;
    Facts facts(region, online);
    if (!facts.passes.reason.empty())
      return {false, {}, facts.passes.reason};
    if (online != Online::No && facts.passes.count >= Facts(whole).passes.count)
      return {false, {}, "no sum goes along with its maximum or its mean"};
    ReduceShape shape = row_shape(region, facts, schedule, target);
    set_common(shape, region, facts, schedule, target);
    return {true, lower_reduction(region, facts.passes, shape), ""};
  }
};

class ColumnsGenerator : public Generator {
public:
  std::string name() const override { return "columns"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    Facts facts(region);
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
    if (!windows_of(region, facts, target).empty()) {
      Schedule in_place;
      in_place.generator = name();
      in_place.knobs["windows"] = 0;
      out.push_back(std::move(in_place));
    }
    return out;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    Facts facts(region);
    if (!facts.passes.reason.empty())
      return {false, {}, facts.passes.reason};
    if (auto why = refused_settings(schedule, target, kRowsKnobs); !why.empty())
      return {false, {}, why};
    if (schedule.knob("online", 0) != 0)
      return {false, {}, "sums go along with their maxima in rows only"};
    if (facts.parallel_axis < 0)
      return {false, {}, "has no parallel axis for lanes"};
    ReduceShape shape = column_shape(region, facts, schedule, target);
    if (schedule.knob("windows", 1) != 0)
      shape.windows = windows_of(region, facts, target);
    set_common(shape, region, facts, schedule, target);
    return {true, lower_reduction(region, facts.passes, shape), ""};
  }

  /// Operands whose neighbours in memory are not reduced together, turned: whole rows then.
  std::vector<LayoutWish> layouts(const Region& region, const Target&) const override {
    Facts facts(region);
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
    Facts facts(region);
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
    Facts facts(region);
    if (!facts.passes.reason.empty())
      return {false, {}, facts.passes.reason};
    if (auto why = refused_settings(schedule, target, kRowsKnobs); !why.empty())
      return {false, {}, why};
    if (schedule.knob("online", 0) != 0)
      return {false, {}, "sums go along with their maxima in rows only"};
    if (schedule.split_reduce < 2)
      return {false, {}, "pieces need @split_reduce of 2 at least"};
    ReduceShape shape = shape_for(region, facts, schedule, target);
    set_common(shape, region, facts, schedule, target);
    shape.prefetch_pass = -1;
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
  static ReduceShape shape_for(const Region& region, const Facts& facts, const Schedule& schedule,
                               const Target& target) {
    return prefers_rows(facts, region, target) ? row_shape(region, facts, schedule, target)
                                               : column_shape(region, facts, schedule, target);
  }
};

} // namespace

const Generator& rows_generator() {
  static const RowsGenerator generator;
  return generator;
}

const Generator& columns_generator() {
  static const ColumnsGenerator generator;
  return generator;
}

const Generator& pieces_generator() {
  static const PiecesGenerator generator;
  return generator;
}

} // namespace egret::kernel
