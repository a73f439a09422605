#include "gpu/gpu.h"
#include "kernel/generator.h"

#include <fmt/format.h>

namespace egret::testing {

std::string check_all_schedules(const RegionCase& region, const std::string& generator) {
  const kernel::Target target = gpu().target();
  const kernel::Generator& made_by = generator_named(generator, target);
  const RegionCase aligned = aligned_for(region, target);
  const RunOptions options{.device = &gpu()};
  const auto space = made_by.space(aligned.region, target);
  for (const kernel::Schedule& s : space) {
    if (std::string wrong = check_schedule(aligned, made_by, s, target, options, true);
        !wrong.empty())
      return wrong;
    const auto program = made_by.lower(aligned.region, s, target).program;
    const auto once = run_region(aligned, program, options),
               again = run_region(aligned, program, options);
    for (std::size_t o = 0; o < once.size(); ++o)
      if (once[o].bytes != again[o].bytes)
        return fmt::format("{}: output {} has other bits in a second run", to_string(s), o);
  }
  return space.empty() ? generator + " has no schedule for\n" + print(aligned.region) : "";
}

} // namespace egret::testing
