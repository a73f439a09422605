// The template that takes every region but those that sort: a nest for each stage that has to be
// stored, over its result axes; cheap maps are computed where they are read, and the results that
// other stages read go through memory. A CPU's workers take points of the axes that may run in any
// order, and vectors along the one of them that suits memory; a GPU's threads a point each. Axes
// that must run in order (of scans, and of updates that may meet) are serial loops inside. One long
// sum over several axes is made in parts by a GPU's blocks. Of the axes along which a scatter's
// updates never meet, those that memory holds inside of an update are gone through for each update.
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/gpu_row_facts.h"
#include "kernel/scatter_axes.h"
#include "kernel/stored_stages.h"
#include "kernel/templates/template.h"
#include "support/checked.h"

#include <algorithm>
#include <array>

namespace egret::kernel {

namespace {

using loops::TreePtr;

constexpr Knob kGenericParameters[] = {{"vector", 0, 1}, {"threads", 32, 1024, 32}};
/// Vectors that one worker does in a row along the vector axis.
constexpr std::int64_t kVectorsInTurn = 128;
/// The same where the worker goes through axes in order for each of them.
constexpr std::int64_t kOrderedChunk = 4;
/// Pieces of a scatter for each worker, and the bytes of a piece's rows at the least: a cache line.
constexpr std::int64_t kPiecesEach = 2, kLineBytes = 64;
/// Points of a piece that is smaller so that a cache holds what its updates go to: with fewer, what
/// updates are made of is read in too many places.
constexpr std::int64_t kCachedPoints = 64;
/// Vectors of an update that are unrolled.
constexpr std::int64_t kMostUnrolled = 8;

/// Result axes along which iterations are independent of each other.
std::vector<int> free_axes(const Region& region, int s) {
  const Stage& stage = region.stages[std::size_t(s)];
  std::vector<int> axes = result_axes(stage);
  if (stage.kind == StageKind::Scan)
    std::erase(axes, stage.over[0]);
  for (const Output& out : region.outputs)
    if (out.stage == s && out.combine != Combine::Store) {
      const std::vector<int> independent = independent_axes(region, out);
      std::erase_if(axes, [&](int a) { return !contains(independent, a); });
    }
  return axes;
}

/// Whether a value depends on an axis, through the results of other stages too.
bool depends(const Region& region, const Stage& stage, int value, int axis) {
  return axes_of_value(region, stage, value)[std::size_t(axis)] ||
         std::ranges::any_of(stage.loads, [&](const Load& l) {
           return l.source == Source::Stage &&
                  contains(result_axes(region.stages[std::size_t(l.number)]), axis);
         });
}

/// Lanes need elements of their own in every output, and those of a scatter share their indices.
bool stores_apart(const Region& region, int s, int axis) {
  const Stage& stage = region.stages[std::size_t(s)];
  return std::ranges::all_of(region.outputs, [&](const Output& out) {
    return out.stage != s ||
           (stride_of(region, out, axis) != 0 && std::ranges::none_of(out.indirect, [&](int c) {
              return depends(region, stage, stage.yields[std::size_t(c)], axis);
            }));
  });
}

/// The stage and the maps that are computed where it reads them.
std::vector<int> with_inlined(const Region& region, int s, const std::vector<bool>& stored) {
  std::vector<int> stages{s};
  for (int t = s; t-- > 0;)
    if (!stored[std::size_t(t)] && !is_output(region, t))
      stages.push_back(t);
  return stages;
}

/// The axis whose points become lanes, -1 for none: a free one along which memory is contiguous
/// for most of what the stage touches.
int vector_axis(const Region& region, int s, std::span<const int> stages) {
  int best = -1;
  double best_score = 0;
  for (int a : free_axes(region, s))
    if (stores_apart(region, s, a))
      if (const double score = vector_score(region, stages, a);
          score > best_score || (score == best_score && best >= 0)) {
        best = a;
        best_score = score;
      }
  return best;
}

/// Whether memory has the points along a free axis closer together than updates that follow each
/// other, so that the updates in order should go through them one by one.
bool lies_inside(const Region& region, std::span<const int> stages, int axis,
                 std::span<const int> updates) {
  std::int64_t votes = 0;
  const auto bytes = [](DType dtype) { return std::int64_t(size_of(dtype)); };
  for (const int s : stages)
    for (const Load& load : region.stages[std::size_t(s)].loads) {
      const Stage& stage = region.stages[std::size_t(s)];
      if (load.source != Source::Operand || !contains(stage.axes, axis))
        continue;
      const std::int64_t own = std::abs(usual_stride_of(region, stage, load, axis).value_or(0));
      for (const int u : updates)
        if (own != 0 && contains(stage.axes, u))
          if (const auto other = usual_stride_of(region, stage, load, u); other && *other != 0)
            votes += (own < std::abs(*other) ? 1 : -1) *
                     bytes(region.operands[std::size_t(load.number)].dtype);
    }
  for (const Output& out : region.outputs)
    if (out.stage == stages.front())
      if (const auto own = stride_of(region, out, axis);
          own && *own != 0 && std::abs(*own) * bytes(out.dtype) < kLineBytes)
        votes += bytes(out.dtype);
  return votes > 0;
}

/// Points along `axis` of a scatter whose updates' elements stay in a cache from one update to the
/// next, by the elements of the output that its other points may go to; nothing where too few do.
std::optional<std::int64_t> cached_points(const Region& region, int s, int axis,
                                          std::span<const int> outside, const Target& target) {
  std::int64_t bytes = 0; // for each point along the axis
  for (const Output& out : region.outputs)
    if (out.stage == s)
      bytes += about(element_count(out.shape)) * std::int64_t(size_of(out.dtype)) /
               std::max<std::int64_t>(1, about(points_of(region, outside)) *
                                             about(region.axes[std::size_t(axis)].extent));
  for (const std::int64_t cache : {target.l1_bytes, target.l2_bytes})
    if (bytes > 0 && cache / 2 / bytes >= kCachedPoints)
      return cache / 2 / bytes;
  return std::nullopt;
}

class GenericTemplate : public Template {
public:
  std::string name() const override { return "generic"; }

protected:
  std::string refuses(const Region& region) const override {
    return sorts(region) ? "it sorts" : "";
  }

  std::span<const Knob> parameters() const override { return kGenericParameters; }

  /// A nest's time follows from what it is of, which no parameter changes much.
  bool ranks() const override { return false; }

  std::vector<Schedule> proposals(const Region&, const Target& target) const override {
    std::vector<Schedule> out;
    const auto add = [&](const char* knob, std::int64_t value, std::int64_t vector_bytes = 0) {
      Schedule& s = out.emplace_back();
      s.generator = name();
      if (knob)
        s.knobs[knob] = value;
      s.vector_bytes = vector_bytes;
    };
    if (target.is_gpu()) {
      for (int threads : {128, 256, 64})
        add("threads", threads);
      return out;
    }
    add(nullptr, 0);
    add("vector", 0);
    if (target.vector_bytes > 16)
      add(nullptr, 0, target.vector_bytes / 2);
    return out;
  }

  Built build(const Region& region, const Schedule& schedule, const Target& target) const override {
    const std::vector<bool> stored = stored_stages(region).stages;
    const std::int64_t bytes = schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes;
    if (target.is_gpu() && is_one_long_sum(region, target))
      return {parts_of_sum(region), ""};
    std::vector<TreePtr> nests;
    for (std::size_t i = 0; i < region.stages.size(); ++i) {
      const int s = int(i);
      if (!stored[i] && !is_output(region, s))
        continue;
      if (target.is_gpu()) {
        nests.push_back(threads_nest(region, s, int(schedule.knob("threads", 128))));
        continue;
      }
      const std::vector<int> stages = with_inlined(region, s, stored);
      const int vector = schedule.knob("vector", 1) != 0 ? vector_axis(region, s, stages) : -1;
      const std::vector<int> inside = inside_updates(region, stages);
      nests.push_back(inside.empty() || (vector >= 0 && !contains(inside, vector))
                          ? workers_nest(region, s, vector, bytes)
                          : updates_nest(region, s, inside, vector, bytes, target));
    }
    return {in_turn(std::move(nests)), ""};
  }

private:
  static TreePtr whole_loops(const Region& region, const std::vector<int>& axes, Bind bind,
                             TreePtr rest) {
    for (std::size_t i = axes.size(); i-- > 0;)
      rest = loop(axes[i], region.axes[std::size_t(axes[i])].extent, 1, bind, std::move(rest));
    return rest;
  }

  /// What is done in order for a point of the free axes, or for a vector of them.
  static TreePtr ordered(const Region& region, int s, const std::vector<int>& free, TreePtr body) {
    const Stage& stage = region.stages[std::size_t(s)];
    TreePtr tree = whole_loops(region, stage.over, Bind::Serial, std::move(body));
    if (stage.kind != StageKind::Map)
      tree = loops::accumulate(s, std::move(tree));
    return whole_loops(region, updated_axes(stage, free), Bind::Serial, std::move(tree));
  }

  /// Along which updates of a scatter may meet.
  static std::vector<int> updated_axes(const Stage& stage, const std::vector<int>& free) {
    return axes_but(axes_but(stage.axes, free), stage.over);
  }

  /// A part for each index of the first axis, by the threads of a block along the last one.
  static TreePtr parts_of_sum(const Region& region) {
    constexpr std::int64_t kThreads = 256, kFewThreads = 32;
    const std::vector<int>& over = region.stages[0].over;
    const std::int64_t last = region.axes[std::size_t(over.back())].extent.value();
    TreePtr tree = loops::body(0);
    if (last >= kFewThreads) {
      const std::int64_t threads = last < kThreads ? kFewThreads : kThreads;
      tree = digits(region, over.back(), {{threads, Bind::Serial}, {1, Bind::Lane}},
                    loops::mask(over.back(), std::move(tree)));
    } else {
      tree = digits(region, over.back(), {{1, Bind::Serial}}, std::move(tree));
    }
    tree = whole_loops(region, {over.begin() + 1, over.end() - 1}, Bind::Serial, std::move(tree));
    tree = whole_loops(region, {over[0]}, Bind::Grid, loops::accumulate(0, std::move(tree)));
    return loops::accumulate(0, std::move(tree));
  }

  static TreePtr threads_nest(const Region& region, int s, int threads) {
    const std::vector<int> free = free_axes(region, s);
    return loops::collapse(
        threads, 1,
        whole_loops(region, free, Bind::Grid, ordered(region, s, free, loops::body(s))));
  }

  /// The free axes of a scatter that lie inside of its updates; none of other stages.
  static std::vector<int> inside_updates(const Region& region, std::span<const int> stages) {
    const Stage& stage = region.stages[std::size_t(stages.front())];
    std::vector<int> inside = free_axes(region, stages.front());
    const std::vector<int> updates = updated_axes(stage, inside);
    if (stage.kind != StageKind::Map || updates.empty())
      return {};
    std::erase_if(inside, [&](int a) { return !lies_inside(region, stages, a, updates); });
    return inside;
  }

  /// Updates in order, each along the axes `inside` of it; workers share out the other free axes,
  /// and pieces of these where the others are too few, or where a cache holds what the updates of a
  /// piece go to.
  static TreePtr updates_nest(const Region& region, int s, std::vector<int> inside, int vector,
                              std::int64_t bytes, const Target& target) {
    const std::vector<int> free = free_axes(region, s);
    const std::vector<int> outside = axes_but(free, inside);
    const int last = vector >= 0 ? vector : inside.back();
    std::erase(inside, last);
    const std::int64_t lanes = vector >= 0 ? lanes_for(region, std::array{s}, bytes) : 1;
    std::size_t narrowest = 8;
    for (const Output& out : region.outputs)
      if (out.stage == s)
        narrowest = std::min(narrowest, size_of(out.dtype));
    const std::int64_t extent = about(region.axes[std::size_t(last)].extent);
    const std::int64_t pieces = (target.workers > 1 ? kPiecesEach * target.workers : 1) /
                                std::max<std::int64_t>(1, about(points_of(region, outside)));
    const std::int64_t least = std::max(lanes, kLineBytes / std::int64_t(narrowest));
    std::int64_t chunk = pieces <= 1
                             ? round_up(extent, lanes)
                             : round_up(std::max(least, ceil_quotient(extent, pieces)), lanes);
    if (const auto cached = cached_points(region, s, last, outside, target))
      chunk = std::min(chunk, round_up(*cached, least));

    TreePtr tree = loops::mask(last, loops::body(s));
    if (lanes > 1)
      tree = loop(last, Expr(lanes), 1, Bind::Vector, std::move(tree));
    const bool split = chunk < extent;
    const Expr steps =
        split ? Expr(chunk / lanes) : ceildiv(region.axes[std::size_t(last)].extent, Expr(lanes));
    const bool few = steps.constant().value_or(kMostUnrolled + 1) <= kMostUnrolled;
    tree = loop(last, steps, lanes, few ? Bind::Unroll : Bind::Serial, std::move(tree));
    tree = whole_loops(region, inside, Bind::Serial, std::move(tree));
    tree = whole_loops(region, updated_axes(region.stages[std::size_t(s)], free), Bind::Serial,
                       std::move(tree));
    if (split)
      tree = loop(last, ceildiv(region.axes[std::size_t(last)].extent, Expr(chunk)), chunk,
                  Bind::Core, std::move(tree));
    return whole_loops(region, outside, Bind::Core, std::move(tree));
  }

  static TreePtr workers_nest(const Region& region, int s, int vector, std::int64_t bytes) {
    const std::vector<int> free = free_axes(region, s);
    if (vector < 0)
      return whole_loops(region, free, Bind::Core, ordered(region, s, free, loops::body(s)));
    const std::int64_t lanes = lanes_for(region, std::array{s}, bytes);
    const bool updates = !updated_axes(region.stages[std::size_t(s)], free).empty();
    const std::int64_t chunk = (updates ? kOrderedChunk : kVectorsInTurn) * lanes;
    TreePtr tree = loops::mask(vector, loops::body(s));
    if (lanes > 1)
      tree = loop(vector, Expr(lanes), 1, Bind::Vector, std::move(tree));
    tree = ordered(region, s, free, std::move(tree));
    std::vector<LoopDigit> steps{{lanes, Bind::Serial}};
    if (!proves_less_equal(region.axes[std::size_t(vector)].extent, Expr(chunk)))
      steps.insert(steps.begin(), {chunk, Bind::Core});
    return whole_loops(region, axes_but(free, std::array{vector}), Bind::Core,
                       digits(region, vector, std::move(steps), std::move(tree)));
  }
};

} // namespace

const Generator& generic_generator() {
  static const GenericTemplate generator;
  return generator;
}

} // namespace egret::kernel
