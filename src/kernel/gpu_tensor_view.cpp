#include "kernel/gpu_tensor_view.h"

#include "kernel/analysis.h"

#include <algorithm>
#include <span>

namespace egret::kernel {

namespace {

/// Terms c * (variable // d) of a sum, as pairs of d and c.
std::vector<std::pair<std::int64_t, std::int64_t>> quotients_of(const Expr& e,
                                                                const Expr& variable) {
  std::vector<std::pair<std::int64_t, std::int64_t>> found;
  const auto term = [&](const Expr& t, std::int64_t times) {
    const ExprNode& n = t.node();
    if (n.kind == ExprKind::FloorDiv && n.operands[0] == variable && n.operands[1].is_constant())
      found.emplace_back(n.operands[1].value(), times);
  };
  const ExprNode& n = e.node();
  if (n.kind != ExprKind::Sum)
    term(e, 1);
  else
    for (std::size_t i = 0; i < n.operands.size(); ++i)
      term(n.operands[i], n.coefficients[i]);
  return found;
}

/// The innermost axes of a group that count as one.
struct Run {
  std::size_t first = 0; ///< of the group's axes
  Expr extent;
};

/// Whether pieces of `tile` elements lie within the run.
bool holds_tiles(const Run& run, int tile) {
  return run.first == 0 || (run.extent.is_constant() && run.extent.value() % tile == 0);
}

} // namespace

TensorView tensor_view(const Region& r, const ContractionForm& f, const Side& side,
                       const AxisGroup& group, int panel, int depth, bool join) {
  TensorView v;
  const Factor factor = factor_of(r, f, side);
  const Stage& stage = r.stages[f.stage];
  const auto because = [&](std::string why) {
    v.reason = std::move(why);
    return v;
  };
  if (!factor.is_load || size_of(factor.dtype) != 2)
    return because("a factor is no array of two-byte elements");
  if (group.axes.empty() || f.depth.axes.empty())
    return because("it has no rows, columns or depth");
  const Load& load = stage.loads[stage.body[factor.value].load];
  v.operand = load.number;
  Expr rest = offset_of(r, load);
  const auto stride_along = [&](int axis) {
    for (std::size_t i = 0; i < stage.axes.size(); ++i)
      if (stage.axes[i] == axis) {
        const Expr variable = Expr::axis(int(i), r.axes[axis].extent);
        if (const auto c = coefficient_of(rest, variable)) {
          rest = rest - *c * variable;
          return *c;
        }
      }
    return Expr(0);
  };
  const int p = group.axes.back(), d = f.depth.axes.back();
  const auto run_of = [&](const AxisGroup& all) {
    const auto step_of = [&](std::size_t i) { return stride_of(r, stage, load, all.axes[i]); };
    Run run{all.axes.size() - 1, r.axes[std::size_t(all.axes.back())].extent};
    const auto step = step_of(run.first);
    while (join && step && *step > 0 && run.first > 0 && run.extent.is_constant() &&
           step_of(run.first - 1) == *step * run.extent.value())
      run.extent = run.extent * r.axes[std::size_t(all.axes[--run.first])].extent;
    return run;
  };
  const Run panel_run = run_of(group), depth_run = run_of(f.depth);
  const auto coordinate_of = [&](const AxisGroup& all, const Run& run) {
    TensorView::Coordinate c;
    Expr step(1);
    for (std::size_t i = all.axes.size(); i-- > run.first;) {
      c.axes.emplace_back(all.axes[i], step);
      step = step * r.axes[std::size_t(all.axes[i])].extent;
    }
    return c;
  };
  v.panel = coordinate_of(group, panel_run);
  v.depth = coordinate_of(f.depth, depth_run);
  // An axis that goes on elsewhere after some elements (heads side by side) is two of the tensor's.
  struct Jump {
    std::int64_t after = 0; ///< elements; 0: the axis is in one piece
    Expr stride;            ///< from one piece to the next
  };
  const auto take_jump = [&](int axis) {
    Jump jump;
    for (std::size_t i = 0; i < stage.axes.size(); ++i) {
      if (stage.axes[i] != axis)
        continue;
      const Expr& extent = r.axes[std::size_t(axis)].extent;
      const Expr variable = Expr::axis(int(i), extent);
      for (const auto& [after, times] : quotients_of(rest, variable))
        if (jump.after == 0 && extent.is_constant() && extent.value() % after == 0) {
          jump.after = after;
          rest = rest - Expr(times) * floordiv(variable, Expr(after));
          jump.stride = Expr(times); // and what the axis itself advances, see below
        }
    }
    return jump;
  };
  Jump panel_jump = take_jump(p), depth_jump = take_jump(d);
  const Expr along_panel = stride_along(p), along_depth = stride_along(d);
  for (const auto& [all, run] : {std::pair{&group, &panel_run}, std::pair{&f.depth, &depth_run}})
    for (std::size_t i = run->first; i + 1 < all->axes.size(); ++i)
      stride_along(all->axes[i]);
  panel_jump.stride = panel_jump.stride + Expr(panel_jump.after) * along_panel;
  depth_jump.stride = depth_jump.stride + Expr(depth_jump.after) * along_depth;
  v.panel.modulus = panel_jump.after;
  v.depth.modulus = depth_jump.after;
  v.transposed = !(along_depth == Expr(1));
  if (v.transposed && !(along_panel == Expr(1)))
    return because("a factor has no neighbours along depth, rows or columns");
  if (v.transposed && panel % kSwizzledRow != 0)
    return because("a tile is no multiple of 64 along a transposed factor");
  const auto extent_of = [&](const Run& run, const Jump& jump) {
    return jump.after > 0 ? Expr(jump.after) : run.extent;
  };
  v.map.extents = {extent_of(panel_run, panel_jump), extent_of(depth_run, depth_jump)};
  v.map.strides = {Expr(1), along_depth};
  v.map.box = {kSwizzledRow, depth};
  if (!v.transposed) {
    std::swap(v.map.extents[0], v.map.extents[1]);
    v.map.strides[1] = along_panel;
    v.map.box = {kSwizzledRow, panel};
  }
  const int panel_tile = v.transposed ? kSwizzledRow : panel,
            depth_tile = v.transposed ? depth : kSwizzledRow;
  if (!holds_tiles(panel_run, panel_tile) || !holds_tiles(depth_run, depth_tile) ||
      panel_jump.after % panel_tile != 0 || depth_jump.after % depth_tile != 0)
    return because("tiles would reach over an edge of one of several axes");
  const auto add_axes = [&](std::span<const int> axes) {
    for (const int axis : axes)
      if (const Expr stride = stride_along(axis); !(stride == Expr(0))) {
        v.others.push_back({{{axis, Expr(1)}}});
        v.map.extents.push_back(r.axes[axis].extent);
        v.map.strides.push_back(stride);
        v.map.box.push_back(1);
      }
  };
  const auto add_jump = [&](int axis, const Jump& jump) {
    if (jump.after == 0)
      return;
    v.others.push_back({{{axis, Expr(1)}}, jump.after});
    v.map.extents.push_back(floordiv(r.axes[std::size_t(axis)].extent, Expr(jump.after)));
    v.map.strides.push_back(jump.stride);
    v.map.box.push_back(1);
  };
  add_jump(p, panel_jump);
  add_jump(d, depth_jump);
  add_axes(f.batch.axes);
  add_axes(std::span(group.axes).first(panel_run.first));
  add_axes(std::span(f.depth.axes).first(depth_run.first));
  if (v.map.extents.size() > 5)
    return because("the copy engine knows five axes");
  for (const Expr& stride : v.map.strides)
    if (stride.lower() < 0)
      return because("a factor runs backwards along an axis");
  for (const Expr& e : variables_of(rest))
    if (e.is_axis())
      return because("a factor's elements are not evenly spaced");
  v.map.offset = rest;
  const auto aligned = [](const Expr& e) { return e.divisor() % 8 == 0; };
  if (r.operands[load.number].alignment % 16 != 0 || !aligned(rest) ||
      !std::all_of(v.map.strides.begin() + 1, v.map.strides.end(), aligned))
    return because("a factor's rows do not begin at multiples of 16 bytes");
  for (const int side_of_box : v.map.box)
    if (side_of_box > 256)
      return because("a tile is longer than the copy engine's 256");
  return v;
}

} // namespace egret::kernel
