#include "kernel/knobs.h"

#include "support/fail.h"

#include <algorithm>
#include <bit>

namespace egret::kernel {

std::string refused_settings(const Schedule& s, const Target& target, std::span<const Knob> knobs,
                             Takes takes) {
  for (const auto& [name, value] : s.knobs) {
    const auto found =
        std::find_if(knobs.begin(), knobs.end(), [&](const Knob& k) { return name == k.name; });
    if (found == knobs.end())
      return fmt::format("{} has no parameter {}", s.generator, name);
    if (value < found->least || value > found->most || (value - found->least) % found->step != 0)
      return fmt::format("{}={} is not one of {}, {} ... {}", name, value, found->least,
                         found->least + found->step, found->most);
  }
  if (!s.tree.empty() && takes != Takes::Tree)
    return fmt::format("{} takes no @tree", s.generator);
  if (!s.mma.empty() && takes != Takes::Matrix)
    return fmt::format("{} takes no @mma", s.generator);
  const std::int64_t shared = std::max<std::int64_t>(target.block_shared_bytes, 0);
  const struct {
    const char* name;
    std::int64_t value, least, most;
  } settings[] = {
      {"vector_bytes", s.vector_bytes, 0, 256},    {"split_reduce", s.split_reduce, 1, 1 << 16},
      {"order", s.order_group, 1, 1 << 16},        {"blocks_per_core", s.blocks_per_core, 0, 32},
      {"least_shared", s.least_shared, 0, shared},
  };
  for (const auto& setting : settings)
    if (setting.value < setting.least || setting.value > setting.most)
      return fmt::format("@{} of {} is not between {} and {}", setting.name, setting.value,
                         setting.least, setting.most);
  if (s.vector_bytes != 0 && !std::has_single_bit(static_cast<std::uint64_t>(s.vector_bytes)))
    return fmt::format("@vector_bytes of {} is no power of two", s.vector_bytes);
  return {};
}

} // namespace egret::kernel
