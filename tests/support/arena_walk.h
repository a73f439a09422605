// A plan's memory, simulated: an account of who wrote each part of the arena last, kept step by
// step, that knows nothing of how the plan was made.
#pragma once

#include "kernel/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace egret::testing {

struct ArenaWalk {
  std::int64_t touched = 0; ///< bytes of the arena up to the last one in use
  std::string problem;      ///< the first read of memory that is not the value's any more; or none
};

inline ArenaWalk walk_arena(const kernel::Plan& plan) {
  constexpr std::int64_t kUnit = 64;
  constexpr int kNobody = -1;
  ArenaWalk walk;
  std::vector<int> owner;
  const auto units = [&](int s, auto&& visit) {
    const kernel::Slot& slot = plan.slots[static_cast<std::size_t>(s)];
    if (slot.kind != kernel::SlotKind::Arena)
      return;
    const std::int64_t from = slot.offset.value(), to = from + slot.bytes.upper();
    walk.touched = std::max(walk.touched, to);
    if (from % kUnit != 0 && walk.problem.empty())
      walk.problem = fmt::format("slot {} is at {}", s, from);
    owner.resize(std::max(owner.size(), static_cast<std::size_t>((to + kUnit - 1) / kUnit)),
                 kNobody);
    for (std::int64_t u = from / kUnit; u * kUnit < to; ++u)
      visit(owner[static_cast<std::size_t>(u)]);
  };
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const kernel::Step& step = plan.steps[i];
    const auto read = [&](int s, int or_owner) {
      units(s, [&](int& who) {
        if (who != s && who != or_owner && walk.problem.empty())
          walk.problem = fmt::format("step {} reads slot {} where slot {} stands", i, s, who);
      });
    };
    const auto write = [&](int s) { units(s, [&](int& who) { who = s; }); };
    if (step.kind == kernel::StepKind::Copy) {
      read(step.slots[0], kNobody - 1);
      write(step.slots[1]);
      continue;
    }
    const kernel::Region& region = plan.kernels[static_cast<std::size_t>(step.kernel)].region;
    std::vector<int> operand_slots;
    std::size_t next = 0;
    for (const kernel::Operand& operand : region.operands)
      operand_slots.push_back(operand.role == kernel::Role::Tensor ? step.slots[next++] : kNobody);
    for (std::size_t o = 0; o < operand_slots.size(); ++o)
      if (operand_slots[o] >= 0)
        read(operand_slots[o], kNobody - 1);
    for (std::size_t o = 0; o < region.outputs.size(); ++o) // what a scatter updates must be there
      if (region.outputs[o].combine != kernel::Combine::Store)
        read(step.slots[next + o],
             operand_slots[static_cast<std::size_t>(region.outputs[o].alias)]);
    const std::vector<int> written(step.slots.begin() + static_cast<std::ptrdiff_t>(next),
                                   step.slots.end());
    for (const int s : written)
      write(s);
    for (const int s : written) // beside each other
      read(s, kNobody - 1);
  }
  return walk;
}

} // namespace egret::testing
