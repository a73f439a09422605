#include "kernel/reduce_axes.h"

#include "kernel/analysis.h"
#include "kernel/map_axes.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// Pieces of work that copying windows leaves for each worker at the least.
constexpr std::int64_t kTasks = 4;
/// Points of an axis that are too few for its lanes.
constexpr std::int64_t kShort = 5;

} // namespace

ReduceAxes::ReduceAxes(const Region& region, Online online)
    : passes(plan_passes(region, false, online)) {
  if (!passes.reason.empty())
    return;
  const std::vector<int> stages = all_stages(region);
  for (const Stage& stage : region.stages)
    argmax = argmax || (stage.kind == StageKind::Reduce && stage.monoid == Monoid::ArgMax);
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
    const bool apart = std::all_of(region.outputs.begin(), region.outputs.end(),
                                   [&](const Output& o) { return stride_of(region, o, a) != 0; });
    // Lanes behind the end of a short axis, such as a window's, do nothing.
    const bool fills = about(region.axes[std::size_t(a)].extent) >= kShort;
    if (auto s = vector_score(region, stages, a, passes.reduced);
        apart &&
        (parallel_axis < 0 || (fills && !is_long) || (fills == is_long && s >= parallel_score))) {
      parallel_axis = a;
      parallel_score = s;
      is_long = fills;
    }
  }
}

StagedWindows staged_windows_of(const Region& region, const ReduceAxes& axes,
                                const Target& target) {
  const std::int64_t tasks = target.workers > 1 ? kTasks * target.workers : 1;
  return find_staged_windows(region, axes.passes, axes.parallel_axis, target.l2_bytes / 2, tasks);
}

bool prefers_rows(const ReduceAxes& axes, const Region& region, const Target& target) {
  if (!staged_windows_of(region, axes, target).inner.empty())
    return false;
  const int lanes = lanes_for(region, all_stages(region), target.vector_bytes);
  const bool short_rows = about(region.axes[std::size_t(axes.reduced_axis)].extent) * 2 < lanes;
  if (axes.passes.parallel.empty() || axes.parallel_axis < 0)
    return true;
  return axes.reduced_score >= axes.parallel_score && !(short_rows && axes.parallel_score >= 0);
}

} // namespace egret::kernel
