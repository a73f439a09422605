#include "kernel/contraction_layouts.h"

#include "kernel/analysis.h"
#include "kernel/contraction_tiles.h"
#include "kernel/tile_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace egret::kernel {

namespace {

/// Of the widest copy that needs no registers.
constexpr std::int64_t kCopyBytes = 16;

const Load& load_of(const Region& region, const ContractionForm& form, const Side& side) {
  const Stage& stage = region.stages[form.stage];
  return stage.loads[stage.body[factor_of(region, form, side).value].load];
}

/// Layouts of a box, digit by digit, by region axes.
struct LayoutMaker {
  LayoutMaker(const Region& region, const std::vector<int>& axes) : memory(axes) {
    for (int axis : memory)
      layout.box.push_back(region.axes[axis].extent.value());
  }
  void digit(int axis, std::int64_t extent = 0) {
    const auto place = std::find(memory.begin(), memory.end(), axis);
    layout.digits.push_back({int(place - memory.begin()), extent});
  }
  void digits(const std::vector<int>& axes) {
    for (int axis : axes)
      if (contains(memory, axis))
        digit(axis);
  }

  const std::vector<int>& memory;
  Layout layout;
};

/// Elements from one step along the axis to the next; 0: no constant, or what is read there depends
/// on where the axis stands in a hole.
std::int64_t step_of(const Region& region, const ContractionForm& form, const Side& side,
                     int axis) {
  const Stage& stage = region.stages[form.stage];
  const Load& load = load_of(region, form, side);
  const auto place = std::find(stage.axes.begin(), stage.axes.end(), axis);
  const Expr variable = Expr::axis(int(place - stage.axes.begin()), region.axes[axis].extent);
  for (const Hole& hole : load.map.holes)
    for (const Guard& guard : hole.valid)
      for (const Expr& e : {guard.value, guard.lo, guard.hi}) {
        const auto variables = variables_of(e);
        if (std::find(variables.begin(), variables.end(), variable) != variables.end())
          return 0;
      }
  return stride_of(region, stage, load, axis).value_or(0);
}

/// Whether pieces of 16 bytes along the axis lie at addresses that are multiples of that.
bool is_copied_along(const Region& region, const ContractionForm& form, const Side& side,
                     int axis) {
  const std::int64_t lanes =
      kCopyBytes / std::int64_t(size_of(factor_of(region, form, side).dtype));
  if (step_of(region, form, side, axis) != 1)
    return false;
  const Stage& stage = region.stages[form.stage];
  const Load& load = load_of(region, form, side);
  const auto place = std::find(stage.axes.begin(), stage.axes.end(), axis);
  const Expr variable = Expr::axis(int(place - stage.axes.begin()), region.axes[axis].extent);
  return (offset_of(region, load) - variable).divisor() % lanes == 0 &&
         region.axes[axis].extent.divisor() % lanes == 0;
}

} // namespace

bool is_windows(const Region& region, const ContractionForm& form, const Side& side) {
  const Stage& stage = region.stages[form.stage];
  const Load& load = load_of(region, form, side);
  std::vector<std::pair<std::int64_t, std::int64_t>> steps; // and how far the axis reaches
  for (const int axis : stage.axes) {
    const auto step = stride_of(region, stage, load, axis);
    const auto extent = region.axes[axis].extent.constant();
    if (!step || !extent)
      return false;
    if (*step != 0)
      steps.emplace_back(std::abs(*step), std::abs(*step) * (*extent - 1));
  }
  std::sort(steps.begin(), steps.end());
  std::int64_t reach = 0;
  for (const auto& [step, far] : steps) {
    if (reach >= step)
      return true;
    reach += far;
  }
  return false;
}

std::optional<Layout> innermost(const Region& region, const ContractionForm& form, const Side& side,
                                int axis) {
  const std::int64_t step = step_of(region, form, side, axis);
  const auto extent = region.axes[axis].extent.constant();
  const auto all =
      element_count(region.operands[load_of(region, form, side).number].shape).constant();
  if (step < 2 || !extent || !all || *all % (step * *extent) != 0)
    return std::nullopt;
  return Layout{{*all / (step * *extent), *extent, step}, {{0, 0}, {2, 0}, {1, 0}}};
}

std::optional<Layout> with_aligned_rows(const Region& region, const ContractionForm& form,
                                        const Side& side, const std::vector<int>& memory) {
  const std::int64_t lanes =
      kCopyBytes / std::int64_t(size_of(factor_of(region, form, side).dtype));
  if (memory.size() < 2 || lanes < 2)
    return std::nullopt;
  const std::int64_t row = region.axes[std::size_t(memory.back())].extent.value();
  if (row % lanes == 0)
    return std::nullopt;
  LayoutMaker make(region, memory);
  make.digits(memory);
  make.layout.digits.back().extent = (row + lanes - 1) / lanes * lanes;
  return make.layout;
}

int axis_to_copy_along(const Region& region, const ContractionForm& form) {
  const std::pair<const Side*, const AxisGroup*> sides[] = {{&form.left, &form.rows},
                                                            {&form.right, &form.columns}};
  bool copied = true; // along the depth or along its own axes
  bool windows = false;
  for (const auto& [side, group] : sides) {
    if (!factor_of(region, form, *side).is_padded_load)
      return -1;
    const auto along = [&, side = side](int axis) {
      return is_copied_along(region, form, *side, axis);
    };
    copied = copied && (std::any_of(form.depth.axes.begin(), form.depth.axes.end(), along) ||
                        std::any_of(group->axes.begin(), group->axes.end(), along));
    windows = windows || is_windows(region, form, *side);
  }
  if (copied || !windows)
    return -1;
  int best = -1;
  for (const int axis : form.depth.axes) {
    const bool may = std::all_of(std::begin(sides), std::end(sides), [&](const auto& s) {
      const std::int64_t lanes =
          kCopyBytes / std::int64_t(size_of(factor_of(region, form, *s.first).dtype));
      return region.axes[axis].extent.divisor() % lanes == 0 &&
             (is_copied_along(region, form, *s.first, axis) ||
              innermost(region, form, *s.first, axis));
    });
    if (may && (best < 0 || region.axes[axis].extent.lower() > region.axes[best].extent.lower()))
      best = axis;
  }
  return best;
}

std::optional<std::array<int, 2>> axes_to_copy_sides_along(const Region& region,
                                                           const ContractionForm& form) {
  const std::array<const Side*, 2> sides{&form.left, &form.right};
  const std::array<const AxisGroup*, 2> groups{&form.rows, &form.columns};
  std::array<int, 2> axes{-1, -1};
  std::array<bool, 2> as_it_is{};
  int depth = -1; // the axis along which the sides that go along the depth are copied
  bool views = false;
  for (std::size_t i = 0; i < 2; ++i) {
    if (!factor_of(region, form, *sides[i]).is_padded_load)
      return std::nullopt;
    const auto along = [&](int axis) { return is_copied_along(region, form, *sides[i], axis); };
    const auto found = std::find_if(form.depth.axes.begin(), form.depth.axes.end(), along);
    if (found != form.depth.axes.end())
      depth = *found;
    as_it_is[i] = found != form.depth.axes.end() ||
                  std::any_of(groups[i]->axes.begin(), groups[i]->axes.end(), along);
    const auto beside = [&](int axis) { return step_of(region, form, *sides[i], axis) == 1; };
    const bool unaligned = !as_it_is[i] && (std::ranges::any_of(form.depth.axes, beside) ||
                                            std::ranges::any_of(groups[i]->axes, beside));
    views = views || unaligned || is_windows(region, form, *sides[i]) ||
            !memory_of(region, form, *sides[i]);
  }
  if (!views || (as_it_is[0] && as_it_is[1]))
    return std::nullopt;
  for (std::size_t i = 0; i < 2; ++i) {
    if (as_it_is[i])
      continue;
    const std::int64_t lanes =
        kCopyBytes / std::int64_t(size_of(factor_of(region, form, *sides[i]).dtype));
    std::int64_t nearest = 0; // the elements that lie between neighbours
    const auto consider = [&](int axis) {
      const std::int64_t step = step_of(region, form, *sides[i], axis);
      if (region.axes[axis].extent.divisor() % lanes == 0 && (nearest == 0 || step < nearest) &&
          innermost(region, form, *sides[i], axis)) {
        nearest = step;
        axes[i] = axis;
      }
    };
    for (const int axis : form.depth.axes)
      if (depth < 0 || axis == depth)
        consider(axis);
    for (const int axis : groups[i]->axes)
      consider(axis);
    if (axes[i] < 0)
      return std::nullopt;
    if (contains(form.depth.axes, axes[i]))
      depth = axes[i];
  }
  return axes;
}

std::optional<std::vector<int>> memory_of(const Region& region, const ContractionForm& form,
                                          const Side& side) {
  if (!factor_of(region, form, side).is_load)
    return std::nullopt;
  return axes_in_memory(region, region.stages[form.stage], load_of(region, form, side));
}

int operand_of(const Region& region, const ContractionForm& form, const Side& side) {
  return load_of(region, form, side).number;
}

Layout in_panels(const Region& region, const ContractionForm& form, const AxisGroup& group,
                 const std::vector<int>& memory, std::int64_t tile, bool pairs) {
  LayoutMaker make(region, memory);
  const int inner = group.axes.back();
  make.digits(form.batch.axes);
  if (group.slices > 1)
    make.digit(group.slice_axis);
  if (tile > 0)
    make.digit(inner);
  else
    for (std::size_t i = 0; i + 1 < group.axes.size(); ++i)
      make.digit(group.axes[i]);
  make.digits(form.depth.axes);
  make.digit(inner, tile);
  if (pairs)
    make.digit(form.depth.axes.back(), 2);
  return make.layout;
}

Layout along_depth(const Region& region, const ContractionForm& form, const AxisGroup& group,
                   const std::vector<int>& memory) {
  LayoutMaker make(region, memory);
  make.digits(form.batch.axes);
  make.digits(group.axes);
  make.digits(form.depth.axes);
  return make.layout;
}

std::vector<LayoutWish> panels_of_right(const Region& region, const ContractionForm& form,
                                        const Target& target) {
  const auto memory = memory_of(region, form, form.right);
  if (!memory || form.right.tile > 0 || form.columns.axes.size() != 1 ||
      !contains(*memory, form.columns.axes.back()))
    return {};
  std::vector<LayoutWish> wishes;
  const auto wish = [&](std::int64_t tile, bool pairs, std::string what) {
    wishes.push_back({operand_of(region, form, form.right),
                      in_panels(region, form, form.columns, *memory, tile, pairs),
                      std::move(what)});
  };
  const bool matrix = matrix_refused(region, form, target).empty() &&
                      form.depth.extent.divisor() % (2 * kChunk) == 0;
  const bool pairs =
      pairs_refused(region, form, target).empty() && form.depth.extent.divisor() % 2 == 0;
  if (form.depth.axes.size() == 1 && (matrix || pairs)) {
    const std::int64_t tile = matrix ? 2 * kChunk : preferred_tile(form, target, true);
    wish(tile, true, fmt::format("panels of {} pairs", tile));
  }
  const std::int64_t tile = preferred_tile(form, target, false);
  wish(tile, false, fmt::format("panels of {}", tile));
  if (form.right.order != Side::Order::Panel)
    wish(0, false, "transposed order");
  return wishes;
}

} // namespace egret::kernel
