#include "kernel/contraction_layouts.h"

#include "kernel/analysis.h"

#include <algorithm>

namespace egret::kernel {

namespace {

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

} // namespace

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

} // namespace egret::kernel
