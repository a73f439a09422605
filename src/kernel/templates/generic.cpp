// The template that takes every region but those that sort: a nest for each stage that has to be
// stored, over its result axes; cheap maps are computed where they are read, and the results that
// other stages read go through memory. A CPU's workers take points of the axes that may run in any
// order, and vectors along the one of them that suits memory; a GPU's threads a point each. Axes
// that must run in order (of scans, and of updates that may meet) are serial loops inside. One long
// sum over several axes is made in parts by a GPU's blocks.
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/gpu_row_facts.h"
#include "kernel/scatter_axes.h"
#include "kernel/stored_stages.h"
#include "kernel/templates/template.h"

#include <algorithm>
#include <array>

namespace egret::kernel {

namespace {

using loops::TreePtr;

constexpr Knob kGenericParameters[] = {{"vector", 0, 1}, {"threads", 32, 1024, 32}};
/// Vectors that one worker does in a row along the vector axis.
constexpr std::int64_t kVectorsInTurn = 128;
/// The same where the worker goes through axes in order for each of them, as scatters do.
constexpr std::int64_t kOrderedChunk = 4;

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

/// The axis whose points become lanes, -1 for none: a free one along which memory is contiguous
/// for most of what the stage touches.
int vector_axis(const Region& region, int s, const std::vector<bool>& stored) {
  std::vector<int> stages{s};
  for (int t = s; t-- > 0;)
    if (!stored[std::size_t(t)] && !is_output(region, t))
      stages.push_back(t);
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
      if (target.is_gpu())
        nests.push_back(threads_nest(region, s, int(schedule.knob("threads", 128))));
      else
        nests.push_back(workers_nest(
            region, s, schedule.knob("vector", 1) != 0 ? vector_axis(region, s, stored) : -1,
            bytes));
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
