#include "kernel/slices.h"

#include "kernel/contraction_tiles.h"
#include "kernel/families.h"
#include "kernel/gpu_contraction_tiles.h"

namespace egret::kernel {

namespace {

/// The form of the product alone, whose slices are columns like others.
ContractionForm without_slices(ContractionForm form) {
  AxisGroup& columns = form.columns;
  columns.axes.insert(columns.axes.begin(), columns.slice_axis);
  columns.slices = 1;
  columns.slice_axis = -1;
  return form;
}

} // namespace

bool slices_pay(const Region& region, const Target& target, double saved) {
  const FoundContraction found = find_contraction(region, true, true);
  if (!found.ok)
    return false;
  const ContractionForm whole = without_slices(found.form);
  if (!target.is_gpu())
    return !matrix_refused(region, whole, target).empty() &&
           !contraction_generator().space(region, target).empty();
  if (!gpu_skinny_generator().space(region, target).empty())
    return true;
  if (found.form.rows.axes.empty())
    return false;
  return gpu_contraction_seconds(region, found.form, target) <
         gpu_contraction_seconds(region, whole, target) + saved;
}

} // namespace egret::kernel
