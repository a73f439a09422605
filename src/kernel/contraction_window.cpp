#include "kernel/contraction_window.h"

#include "kernel/analysis.h"
#include "kernel/emit.h"
#include "support/checked.h"

#include <algorithm>

namespace egret::kernel {

std::optional<WindowedContraction> with_window(const Region& region, const ContractionForm& form,
                                               const Target& target, int lanes) {
  const Factor factor = factor_of(region, form, form.right);
  if (!factor.is_padded_load || form.right.tile > 0 || form.columns.slices > 1 ||
      form.columns.padded > 0)
    return std::nullopt;
  const Stage& stage = region.stages[std::size_t(form.stage)];
  const Load& load = stage.loads[std::size_t(stage.body[std::size_t(factor.value)].load)];
  if (compute_dtype(region.operands[std::size_t(load.number)].dtype) != form.accumulator)
    return std::nullopt;
  const auto access = loops::access_of(region, stage, load);
  if (!access)
    return std::nullopt;
  const auto constant = [&](int a) {
    return region.axes[std::size_t(a)].extent.constant().value_or(0) > 0;
  };
  for (const AxisGroup* group : {&form.rows, &form.columns, &form.depth})
    if (!std::all_of(group->axes.begin(), group->axes.end(), constant))
      return std::nullopt;
  WindowedContraction found{.form = form, .operand = load.number, .window = {}};
  AxisGroup& columns = found.form.columns;
  AxisGroup& batch = found.form.batch;
  const int along = columns.axes.back();
  for (;;) {
    std::vector<int> inner = columns.axes;
    inner.insert(inner.end(), form.depth.axes.begin(), form.depth.axes.end());
    auto window = loops::window_over(region, *access, inner, along);
    if (!window || !window->used_if.empty())
      return std::nullopt;
    found.window = std::move(*window);
    if (found.window.elements() * std::int64_t(size_of(form.accumulator)) <= target.l2_bytes / 2)
      break;
    // A smaller copy, for each index of an axis along which no windows lie.
    const auto alone = std::find_if(columns.axes.begin(), columns.axes.end() - 1, [&](int a) {
      return std::all_of(found.window.coordinates.begin(), found.window.coordinates.end(),
                         [&](const loops::WindowCoordinate& c) {
                           const std::vector<int> in = loops::axes_in(c.value);
                           return in.size() == 1 || !contains(in, a);
                         });
    });
    if (alone == columns.axes.end() - 1)
      break;
    batch.axes.insert(batch.axes.begin(), *alone);
    columns.axes.erase(alone);
  }
  const bool windows = std::any_of(
      found.window.coordinates.begin(), found.window.coordinates.end(),
      [](const loops::WindowCoordinate& c) { return loops::axes_in(c.value).size() > 1; });
  if (!windows)
    return std::nullopt;
  found.gathers = found.window.coordinates.back().stride * found.window.step != 1;
  columns.places = *region.axes[std::size_t(along)].extent.constant();
  columns.padded = round_up<std::int64_t>(columns.places, lanes);
  batch.extent = points_of(region, batch.axes);
  columns.extent =
      points_of(region, std::vector<int>(columns.axes.begin(), columns.axes.end() - 1)) *
      Expr(columns.padded);
  return found;
}

} // namespace egret::kernel
