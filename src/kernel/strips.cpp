#include "kernel/strips.h"

#include "kernel/analysis.h"
#include "kernel/contraction_form.h"

#include <cmath>
#include <optional>
#include <set>

namespace egret::kernel {

namespace {

/// Loads of memory, a result, for as many results along the axis, their terms along `along`
/// standing together. Nothing where a stride is not known.
std::optional<double> loads_of(const Region& region, int axis, int along, int results) {
  const std::int64_t terms = region.axes[std::size_t(along)].extent.value();
  double loads = 0;
  for (const Stage& stage : region.stages)
    for (const Load& load : stage.loads) {
      if (load.source != Source::Operand)
        continue;
      const auto across = stride_of(region, stage, load, axis),
                 down = stride_of(region, stage, load, along);
      if (!across || !down)
        return std::nullopt;
      std::set<std::int64_t> elements;
      for (int r = 0; r < results; ++r)
        for (std::int64_t t = 0; t < terms; ++t)
          elements.insert(r * *across + t * *down);
      loads += double(elements.size()) / results;
    }
  return loads;
}

} // namespace

Strip overlapping_strip(const Region& region, const Passes& passes, int tile, int most) {
  constexpr double kLeastGain = 1.5;
  constexpr std::int64_t kMostAlong = 64;
  Strip best;
  double gain = kLeastGain;
  for (const int axis : passes.parallel) {
    const Expr& extent = region.axes[std::size_t(axis)].extent;
    if (axis == tile || extent.upper() < 2)
      continue;
    for (const int along : passes.reduced) {
      const Expr& terms = region.axes[std::size_t(along)].extent;
      const auto alone = terms.is_constant() && terms.value() > 1 && terms.value() <= kMostAlong
                             ? loads_of(region, axis, along, 1)
                             : std::nullopt;
      if (!alone)
        continue;
      for (int results = 2; results <= most; ++results) {
        // Results of the last strip that do not exist take their time all the same.
        const auto there = double(usual_size(extent));
        const double made = std::ceil(there / results) * results;
        const auto loads = loads_of(region, axis, along, results);
        if (loads && *alone / *loads * there / made > gain) {
          gain = *alone / *loads * there / made;
          best = {axis, along, results};
        }
      }
    }
  }
  return best;
}

} // namespace egret::kernel
