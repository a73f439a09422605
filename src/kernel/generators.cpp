#include "kernel/generator.h"

#include "kernel/families.h"
#include "support/fail.h"

#include <array>

namespace egret::kernel {

std::span<const Generator* const> generators(const Target& target) {
  static const std::array list{
      &batch_generator(),   &elementwise_generator(), &contraction_generator(), &stream_generator(),
      &pieces_generator(),  &rows_generator(),        &columns_generator(),     &scans_generator(),
      &generic_generator(), &loops_generator()};
  static const std::array gpu{
      &batch_generator(),           &gpu_elementwise_generator(), &gpu_skinny_generator(),
      &gpu_contraction_generator(), &gpu_stream_generator(),      &gpu_row_products_generator(),
      &gpu_rows_generator(),        &gpu_columns_generator(),     &gpu_scans_generator(),
      &gpu_generic_generator(),     &gpu_library_generator(),     &loops_generator()};
  return target.device == "cuda" ? std::span<const Generator* const>(gpu)
                                 : std::span<const Generator* const>(list);
}

Chosen lower_greedily(const Region& region, const Target& target) {
  std::string reasons;
  for (const Generator* generator : generators(target))
    for (Schedule& schedule : generator->space(region, target)) {
      Lowered lowered = generator->lower(region, schedule, target);
      if (lowered.ok)
        return {std::move(schedule), std::move(lowered.program)};
      reasons += fmt::format("\n  {}: {}", to_string(schedule), lowered.reason);
    }
  ensure(false, "no generator takes region {}:{}\n{}", region.name, reasons, print(region));
  return {};
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
