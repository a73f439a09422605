#include "kernel/reduce_axes.h"

#include "kernel/analysis.h"
#include "kernel/loops/windows.h"
#include "kernel/map_axes.h"
#include "kernel/templates/template.h"

#include <algorithm>
#include <cstdlib>

namespace egret::kernel {

namespace {

/// Pieces of work that copying windows leaves for each worker at the least.
constexpr std::int64_t kTasks = 4;
/// Points of an axis that are too few for its lanes.
constexpr std::int64_t kShort = 5;
/// Uses of an element that pay for a copy that all threads wait for, and its most elements.
constexpr std::int64_t kUsesOfCopy = 16, kMostCopied = 1 << 16;

using loops::slope;

/// The reduced axes, and the parallel ones that share a place with one of them or with the lanes.
std::vector<int> axes_of_windows(const Region& region, const ReduceAxes& axes,
                                 const loops::Access& access) {
  const Passes& passes = axes.passes;
  std::vector<int> inner = passes.reduced;
  inner.push_back(axes.parallel_axis);
  const auto add = [&](int a) {
    if (!contains(inner, a))
      inner.push_back(a);
  };
  for (const Guard& g : access.valid) {
    const std::vector<int> in = loops::axes_in(g.value);
    if (std::any_of(in.begin(), in.end(), [&](int a) {
          return region.axes[std::size_t(a)].reduction || a == axes.parallel_axis;
        }))
      std::for_each(in.begin(), in.end(), add);
  }
  for (int r : passes.reduced)
    for (int p : passes.parallel) {
      const auto s = slope(region, access.offset, r), t = slope(region, access.offset, p);
      if (s && t && *s != 0 && *t != 0 && *t % *s == 0 &&
          std::abs(*t) < std::abs(*s) * region.axes[std::size_t(r)].extent.constant().value_or(0))
        add(p);
    }
  return inner;
}

/// Whether lanes cannot load what they read of an operand as it is.
bool loads_badly(const Region& region, const loops::Access& access, DType dtype, int lanes_axis) {
  return is_low(dtype) || slope(region, access.offset, lanes_axis) != 1 ||
         std::any_of(access.valid.begin(), access.valid.end(),
                     [&](const Guard& g) { return contains(loops::axes_in(g.value), lanes_axis); });
}

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

StagedOperands staged_operands(const Region& region, const ReduceAxes& axes, const Target& target) {
  StagedOperands found;
  const int lanes_axis = axes.parallel_axis;
  if (lanes_axis < 0)
    return found;
  const std::vector<int> all = axes_but(region, {});
  std::vector<int> inner = axes.passes.reduced;
  inner.push_back(lanes_axis);
  for (std::size_t o = 0; o < region.operands.size(); ++o) {
    const auto access = loops::only_access(region, int(o));
    const auto lanes = access ? slope(region, access->offset, lanes_axis) : std::nullopt;
    if (!lanes || *lanes == 0 ||
        !loads_badly(region, *access, region.operands[o].dtype, lanes_axis))
      continue;
    const auto whole = loops::window_over(region, *access, all, lanes_axis);
    if (*lanes != 1 && whole && whole->elements() <= kMostCopied &&
        loops::points_at_most(region, all) >= kUsesOfCopy * whole->elements()) {
      found.once.push_back(int(o));
      continue;
    }
    const std::vector<int> own = axes_of_windows(region, axes, *access);
    const auto window = loops::window_over(region, *access, own, lanes_axis);
    if (!window || !window->overlaps(region, *access, own, loops::kUsesOfWindow))
      continue;
    found.windows.push_back(int(o));
    for (int a : own)
      if (!contains(inner, a))
        inner.push_back(a);
  }
  std::int64_t bytes = 0;
  std::erase_if(found.windows, [&](int o) {
    const auto access = loops::only_access(region, o);
    const auto window = loops::window_over(region, *access, inner, lanes_axis);
    const bool pays = window && window->overlaps(region, *access, inner, loops::kUsesOfWindow);
    bytes += pays ? window->elements() * 4 : 0;
    return !pays;
  });
  const std::vector<int> outside = axes_but(axes.passes.parallel, inner);
  const std::int64_t tasks = target.workers > 1 ? kTasks * target.workers : 1;
  if (bytes > target.l2_bytes / 2 || loops::points_at_most(region, outside) < tasks)
    found.windows.clear();
  if (!found.windows.empty())
    found.inner = axes_but(axes.passes.parallel, outside);
  return found;
}

StagedOperands staged_alone(const Region& region, const ReduceAxes& axes, Target target) {
  target.workers = 1;
  return staged_operands(region, axes, target);
}

} // namespace egret::kernel
