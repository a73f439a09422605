#include "kernel/generator.h"

#include "kernel/families.h"
#include "support/fail.h"

#include <algorithm>
#include <array>

namespace egret::kernel {

std::span<const Generator* const> generators(const Target& target) {
  static const std::array list{
      &batch_generator(),   &elementwise_generator(), &contraction_generator(),
      &stream_generator(),  &reduction_generator(),   &rows_generator(),
      &columns_generator(), &scans_generator(),       &sort_generator(),
      &scatter_generator(), &generic_generator(),     &loops_generator()};
  static const std::array gpu{&batch_generator(),
                              &elementwise_generator(),
                              &gpu_points_generator(),
                              &gpu_window_sums_generator(),
                              &gpu_ring_generator(),
                              &gpu_skinny_generator(),
                              &gpu_contraction_generator(),
                              &gpu_stream_generator(),
                              &gpu_row_products_generator(),
                              &gpu_rows_generator(),
                              &reduction_threads_generator(),
                              &gpu_scans_generator(),
                              &gpu_sort_generator(),
                              &gpu_scatter_generator(),
                              &generic_generator(),
                              &gpu_library_generator(),
                              &loops_generator()};
  return target.is_gpu() ? std::span<const Generator* const>(gpu)
                         : std::span<const Generator* const>(list);
}

const Generator* find_generator(std::string_view name, const Target& target) {
  const auto all = generators(target);
  const auto found =
      std::ranges::find_if(all, [&](const Generator* g) { return g->name() == name; });
  return found == all.end() ? nullptr : *found;
}

Chosen lower_greedily(const Region& region, const Target& target,
                      std::vector<FailedLowering>* failed) {
  std::string reasons;
  for (const Generator* generator : generators(target)) {
    std::string at(generator->name());
    try {
      for (Schedule& schedule : generator->space(region, target)) {
        at = to_string(schedule);
        Lowered lowered = generator->lower(region, schedule, target);
        if (lowered.ok)
          return {std::move(schedule), std::move(lowered.program)};
        reasons += fmt::format("\n  {}: {}", at, lowered.reason);
      }
    } catch (const InternalError& error) {
      if (!failed)
        throw;
      reasons += fmt::format("\n  {}: {}", at, error.what());
      failed->push_back({std::move(at), error.what()});
    }
  }
  ensure(false, "no generator takes region {}:{}\n{}", region.name, reasons, print(region));
  return {};
}

std::optional<Chosen> lower_next(const Region& region, const Target& target,
                                 const std::string& family,
                                 const std::function<bool(const Schedule&)>& tries,
                                 const std::function<bool(Chosen&)>& takes) {
  // Behind the generic one, which takes every region, are those that a search alone may choose.
  const Generator* const last = &generic_generator();
  std::vector<const Generator*> order;
  for (const Generator* generator : generators(target)) {
    order.push_back(generator);
    if (generator == last)
      break;
  }
  std::stable_partition(order.begin(), order.end(),
                        [&](const Generator* g) { return g->name() == family; });
  for (const Generator* generator : order)
    try {
      for (Schedule& schedule : generator->space(region, target)) {
        if (!tries(schedule))
          continue;
        Lowered lowered;
        try {
          lowered = generator->lower(region, schedule, target);
        } catch (const InternalError&) {
          continue;
        }
        if (!lowered.ok)
          continue;
        Chosen chosen{std::move(schedule), std::move(lowered.program)};
        if (takes(chosen))
          return chosen;
      }
    } catch (const InternalError&) { // its space
    }
  return std::nullopt;
}

std::optional<Chosen> lower_frugally(const Region& region, const Schedule& schedule,
                                     const Target& target) {
  for (const Generator* generator : generators(target)) {
    if (generator->name() != schedule.generator)
      continue;
    std::optional<Schedule> frugal = generator->frugal(schedule);
    if (!frugal)
      return std::nullopt;
    Lowered lowered = generator->lower(region, *frugal, target);
    if (!lowered.ok)
      return std::nullopt;
    return Chosen{std::move(*frugal), std::move(lowered.program)};
  }
  return std::nullopt;
}

} // namespace egret::kernel
