#include "kernel/contraction_window.h"

#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/nest.h"
#include "support/checked.h"

#include <algorithm>

namespace egret::kernel {

std::optional<WindowedContraction> with_window(const Region& region, const ContractionForm& form,
                                               const Target& target, int lanes, bool packed) {
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
  const auto extent = [&](int a) { return *region.axes[std::size_t(a)].extent.constant(); };
  // Vectors of a panel go along the longest axis where the innermost one, such as the places of a
  // small window whose gradient is computed, does not fill them.
  if (const auto longest = std::max_element(columns.axes.begin(), columns.axes.end(),
                                            [&](int a, int b) { return extent(a) < extent(b); });
      packed && extent(columns.axes.back()) < lanes)
    std::rotate(longest, longest + 1, columns.axes.end());
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
  batch.extent = points_of(region, batch.axes);
  columns.extent = points_of(region, columns.axes);
  if (packed)
    return found;
  columns.places = *region.axes[std::size_t(along)].extent.constant();
  columns.padded = round_up<std::int64_t>(columns.places, lanes);
  columns.extent =
      points_of(region, std::vector<int>(columns.axes.begin(), columns.axes.end() - 1)) *
      Expr(columns.padded);
  return found;
}

int lanes_of_packing(const Region& region, const ContractionForm& form, int lanes) {
  const std::int64_t row = *region.axes[std::size_t(form.columns.axes.back())].extent.constant();
  while (lanes > 2 && lanes - 1 > row)
    lanes /= 2;
  return lanes;
}

WindowReader::WindowReader(Emitter& emitter, const WindowedContraction& windowed, int lanes)
    : e_(emitter), w_(windowed), lanes_(lanes) {
  const Expr place = w_.window.offset(at_depth(Expr::axis(0, w_.form.depth.extent)));
  least_ = place.lower();
  most_ = place.upper();
}

void WindowReader::declare(bool shared) {
  ProgramBuilder& b = e_.builder();
  shared_ = shared;
  const Expr elements(w_.elements(lanes_));
  copy_ = shared ? b.workspace("window", w_.form.accumulator, elements)
                 : b.worker_memory("window", w_.form.accumulator, elements);
  table_ = b.worker_memory("steps", DType::I32, w_.form.depth.extent);
}

Point WindowReader::at_depth(const Expr& step) const {
  Point p;
  p.at.assign(e_.region().axes.size(), Expr(0));
  put_index(p, e_.region(), w_.form.depth, step);
  return p;
}

Expr WindowReader::place_of(const Point& point) const {
  Point p = point;
  for (const int axis : w_.form.depth.axes)
    p.at[std::size_t(axis)] = Expr(0);
  return w_.window.offset(p) - w_.window.offset(at_depth(Expr(0)));
}

void WindowReader::fill_table() {
  ProgramBuilder& b = e_.builder();
  const Expr steps = w_.form.depth.extent;
  vector_loop(b, Expr(0), steps, steps, lanes_, 1, [&](std::span<const Position> at) {
    const Expr place = w_.window.offset(at_depth(at[0].at));
    b.store(table_, at[0].at, b.splat(b.index(place, DType::I32, lanes_), lanes_), at[0].mask);
  });
}

void WindowReader::copy(const Point& batch) {
  ProgramBuilder& b = e_.builder();
  loops::copy_window(e_, w_.operand, w_.window, copy_, Expr(lanes_), batch, lanes_, shared_);
  // Lanes before the first row and behind the last one are read, and what comes of them is never
  // stored.
  const auto ends = [&] {
    const Expr lane = lanes_ > 1 ? lane_variable(lanes_) : Expr(0);
    const ValueId zero = b.constant(Scalar::of(w_.form.accumulator, 0.0), lanes_);
    b.store(copy_, lane, zero);
    b.store(copy_, Expr(w_.window.elements() + lanes_) + lane, zero);
  };
  if (shared_)
    core_loop(b, std::vector<Expr>{Expr(1)}, [&](std::span<const Expr>) { ends(); });
  else
    ends();
}

ValueId WindowReader::vector_at(const Point& point, const Expr& step) const {
  ProgramBuilder& b = e_.builder();
  // The bounds tell the code generator that whole vectors may be read.
  const Expr of_step = min(max(value_symbol(b.load(table_, step, 1)), Expr(least_)), Expr(most_));
  return b.load(copy_, Expr(lanes_) + place_of(point) + of_step, point.lanes, point.mask);
}

ValueId WindowReader::pairs_at(const Point& point, const Expr& step, bool half) const {
  ProgramBuilder& b = e_.builder();
  // What was widened from bf16 has zeros in its lower half.
  const auto bits = [&](const Expr& at) {
    return b.apply(Op::Bitcast, DType::U32, {vector_at(point, at)});
  };
  const ValueId lower = b.apply(
      Op::Shr, DType::U32,
      {bits(step * Expr(2)), b.constant(Scalar::of(DType::U32, std::int64_t{16}), point.lanes)});
  return half ? lower : b.apply(Op::Or, DType::U32, {lower, bits(step * Expr(2) + Expr(1))});
}

} // namespace egret::kernel
