#include "kernel/slices.h"

#include "kernel/contraction_tiles.h"
#include "kernel/families.h"
#include "kernel/gpu_contraction_tiles.h"

#include <algorithm>

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

/// Whether vectors have no lanes behind a slice's end. On a CPU these cost more than a launch,
/// which is a call there: steps of a GRU of width 83 took 1.1 times as long in one kernel.
bool has_whole_vectors(const ContractionForm& form, const Target& target) {
  const auto lanes = target.vector_bytes / std::int64_t(size_of(form.accumulator));
  return form.columns.slice_extent().divisor() % std::max<std::int64_t>(lanes, 1) == 0;
}

} // namespace

bool slices_pay(const Region& region, const Target& target, double saved) {
  const FoundContraction found = find_contraction(region, true, true);
  if (!found.ok)
    return false;
  const ContractionForm whole = without_slices(found.form);
  if (!target.is_gpu())
    return has_whole_vectors(found.form, target) &&
           !matrix_refused(region, whole, target).empty() &&
           !contraction_generator().space(region, target).empty();
  if (!gpu_ring_generator().space(region, target).empty() ||
      !gpu_skinny_generator().space(region, target).empty())
    return true;
  if (found.form.rows.axes.empty())
    return false;
  return gpu_contraction_seconds(region, found.form, target) <
         gpu_contraction_seconds(region, whole, target) + saved;
}

} // namespace egret::kernel
