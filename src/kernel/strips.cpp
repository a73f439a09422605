#include "kernel/strips.h"

#include "kernel/analysis.h"
#include "kernel/contraction_form.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace egret::kernel {

namespace {

/// Terms along an axis, up to which it is looked at.
constexpr std::int64_t kMostAlong = 64;

/// By load of memory: elements from one step along each axis to the next; nothing where one is not
/// known.
std::vector<std::optional<std::pair<std::int64_t, std::int64_t>>> steps_along(const Region& region,
                                                                              int axis, int along) {
  std::vector<std::optional<std::pair<std::int64_t, std::int64_t>>> steps;
  for (const Stage& stage : region.stages)
    for (const Load& load : stage.loads) {
      if (load.source != Source::Operand)
        continue;
      const auto across = stride_of(region, stage, load, axis),
                 down = stride_of(region, stage, load, along);
      steps.push_back(across && down ? std::optional(std::pair(*across, *down)) : std::nullopt);
    }
  return steps;
}

/// Loads of memory, a result, for as many results along the axis, their terms along `along`
/// standing together. Nothing where a stride is not known.
std::optional<double> loads_of(const Region& region, int axis, int along, int results) {
  const std::int64_t terms = region.axes[std::size_t(along)].extent.value();
  double loads = 0;
  for (const auto& step : steps_along(region, axis, along)) {
    if (!step)
      return std::nullopt;
    std::set<std::int64_t> elements;
    for (int r = 0; r < results; ++r)
      for (std::int64_t t = 0; t < terms; ++t)
        elements.insert(r * step->first + t * step->second);
    loads += double(elements.size()) / results;
  }
  return loads;
}

} // namespace

bool windows_overlap(const Region& region, int axis, int along) {
  const std::int64_t most = region.axes[std::size_t(along)].extent.upper();
  return std::ranges::any_of(steps_along(region, axis, along), [&](const auto& step) {
    return step && step->first != 0 && step->second != 0 && step->first % step->second == 0 &&
           std::abs(step->first / step->second) < std::min(most, kMostAlong);
  });
}

Strip overlapping_strip(const Region& region, const Passes& passes, int tile, int most) {
  constexpr double kLeastGain = 1.5;
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
