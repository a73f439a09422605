#include "kernel/target.h"

#include "support/checked.h"

#include <algorithm>

namespace egret::kernel {

const MatrixUnit* Target::unit(FragmentLayout layout) const {
  for (const MatrixUnit& u : units)
    if (u.layout == layout)
      return &u;
  return nullptr;
}

const MatrixUnit* Target::unit(FragmentLayout layout, DType element) const {
  for (const MatrixUnit& u : units)
    if (u.layout == layout &&
        std::find(u.elements.begin(), u.elements.end(), element) != u.elements.end())
      return &u;
  return nullptr;
}

std::int64_t Target::registers_of_thread(std::int64_t threads) const {
  constexpr std::int64_t kStep = 8, kMost = 255; // what a thread gets is a multiple of kStep
  const std::int64_t lanes = std::max(subgroup, 1), parts = std::max(schedulers, 1);
  const std::int64_t subgroups = round_up(round_up(threads, lanes) / lanes, parts);
  return std::min(registers / std::max<std::int64_t>(subgroups * lanes, 1) / kStep * kStep, kMost);
}

} // namespace egret::kernel
