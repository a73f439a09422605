#include "compiler/requested_schedules.h"

#include "kernel/families.h"
#include "kernel/templates/template.h"
#include "support/fail.h"

#include "egret/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace egret::compiler {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos)
    return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

/// Names as users write them, by region.
std::vector<std::string> names_of(std::span<const kernel::Region* const> regions) {
  std::map<std::string, int> count, met;
  for (const kernel::Region* region : regions)
    ++count[region->name];
  std::vector<std::string> names;
  for (const kernel::Region* region : regions)
    names.push_back(count[region->name] == 1
                        ? region->name
                        : fmt::format("{}#{}", region->name, ++met[region->name]));
  return names;
}

kernel::Lowered lowered(const kernel::Region& region, const kernel::Schedule& schedule,
                        const kernel::Target& target) {
  const std::string loops = kernel::loops_generator().name();
  if (schedule.generator == loops)
    return kernel::loops_generator().lower(region, schedule, target);
  std::vector<std::string> known{loops};
  for (const kernel::Generator* generator : kernel::generators(target)) {
    if (generator->name() == schedule.generator)
      return generator->lower(region, schedule, target);
    known.push_back(generator->name());
  }
  return {false,
          {},
          fmt::format("`{}` is no template for {}; there are {}", schedule.generator, target.device,
                      fmt::join(known, ", "))};
}

kernel::Chosen chosen(const std::string& name, const std::string& text,
                      const kernel::Region& region, const kernel::Target& target) {
  kernel::Chosen made;
  kernel::Lowered result;
  try {
    made.schedule = kernel::parse_schedule(text);
    result = lowered(region, made.schedule, target);
    if (result.ok)
      kernel::verify(result.program);
  } catch (const Error& error) {
    result = {false, {}, error.what()};
  } catch (const InternalError& error) { // the schedule is the user's: a fault of it is no fault
    result = {false, {}, error.what()};  // of the program's
  }
  if (!result.ok)
    fail(ErrorKind::Value, "schedule of {}: {}: {}", name, text, result.reason);
  made.program = std::move(result.program);
  return made;
}

} // namespace

RequestedSchedules parse_requested_schedules(std::string_view text, std::string_view who) {
  RequestedSchedules requested;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#')
      continue;
    const std::size_t equals = line.find('=');
    const std::string_view name = trimmed(line.substr(0, std::min(equals, line.size())));
    const std::string_view schedule =
        equals == std::string_view::npos ? "" : trimmed(line.substr(equals + 1));
    if (name.empty() || schedule.empty() || name.find(' ') != std::string_view::npos)
      fail(ErrorKind::Parse, "{}: line {}: `KERNEL = SCHEDULE` is wanted", who, number);
    if (!requested.emplace(name, schedule).second)
      fail(ErrorKind::Parse, "{}: line {}: `{}` has a schedule already", who, number, name);
  }
  return requested;
}

std::map<std::size_t, kernel::Chosen>
lower_requested(const RequestedSchedules& requested, std::span<const kernel::Region* const> regions,
                const kernel::Target& target) {
  const std::vector<std::string> names = names_of(regions);
  std::map<std::size_t, kernel::Chosen> made;
  for (const auto& [name, text] : requested) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      fail(ErrorKind::Value, "schedule of {}: the program has no such kernel; it has {}", name,
           fmt::join(names, ", "));
    const auto at = static_cast<std::size_t>(found - names.begin());
    made.emplace(at, chosen(name, text, *regions[at], target));
  }
  return made;
}

std::string schedules_text(std::span<const kernel::KernelEntry> kernels,
                           const kernel::Target& target) {
  std::vector<const kernel::Region*> regions;
  for (const kernel::KernelEntry& entry : kernels)
    regions.push_back(&entry.region);
  const std::vector<std::string> names = names_of(regions);
  std::string text;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const kernel::KernelEntry& entry = kernels[i];
    kernel::Schedule schedule = entry.schedule;
    if (const auto tree = kernel::tree_of(entry.region, schedule, target)) {
      schedule.generator = kernel::loops_generator().name();
      schedule.knobs.clear();
      schedule.vector_bytes = 0;
      schedule.tree = kernel::loops::to_text(**tree, entry.region);
    }
    text += fmt::format("{} = {}\n", names[i], kernel::to_string(schedule));
  }
  return text;
}

} // namespace egret::compiler
