#include "runtime/constant_steps.h"

#include <algorithm>

namespace egret::runtime {

namespace {

using compiler::PlannedWork;

/// The slots of a launch: those that it reads, those of its results, and workspaces.
struct Slots {
  std::span<const int> read, stored;
};

Slots slots_of(const kernel::Plan& plan, const kernel::Step& step) {
  const std::span<const int> all = step.slots;
  if (step.kind == kernel::StepKind::Copy)
    return {all.first(1), all.subspan(1)};
  if (step.kind != kernel::StepKind::Launch)
    return {};
  const kernel::Region& region = plan.kernels[static_cast<std::size_t>(step.kernel)].region;
  const auto reads = static_cast<std::size_t>(
      std::ranges::count_if(region.operands, [](const kernel::Operand& operand) {
        return operand.role != kernel::Role::Scalar;
      }));
  return {all.first(reads), all.subspan(reads, region.outputs.size())};
}

class Finder {
public:
  Finder(const kernel::Plan& plan, std::size_t most_bytes)
      : plan_(plan), most_bytes_(most_bytes), writers_(plan.slots.size()),
        constant_(plan.slots.size()) {
    for (const kernel::Step& step : plan.steps)
      for (const int slot : slots_of(plan, step).stored)
        ++writers_[static_cast<std::size_t>(slot)];
  }

  ConstantSteps run(std::span<const PlannedWork> planned) {
    for (const PlannedWork& work : planned)
      if (!is_constant(work))
        found_.rest.push_back(work);
    if (found_.rest.size() == planned.size())
      return {};
    // A launch may begin early only behind one that has waited for what came before the plan.
    const auto first = std::ranges::find_if(
        found_.rest, [](const PlannedWork& work) { return work.program != nullptr; });
    if (first != found_.rest.end())
      first->settled = false;
    std::ranges::sort(found_.slots);
    return std::move(found_);
  }

private:
  bool is_constant(const PlannedWork& work) {
    const kernel::Step& step = *work.step;
    if (work.count != 1 || step.kind != kernel::StepKind::Launch || !step.dims.empty())
      return false;
    const auto [read, stored] = slots_of(plan_, step);
    if (!std::ranges::all_of(read,
                             [&](int slot) { return constant_[static_cast<std::size_t>(slot)]; }))
      return false;
    std::size_t bytes = 0;
    for (const int number : stored) {
      const kernel::Slot& slot = plan_.slots[static_cast<std::size_t>(number)];
      if (slot.kind != kernel::SlotKind::Arena || writers_[static_cast<std::size_t>(number)] != 1 ||
          !slot.bytes.is_constant())
        return false;
      bytes += static_cast<std::size_t>(slot.bytes.value());
    }
    if (found_.bytes + bytes > most_bytes_)
      return false;
    found_.bytes += bytes;
    for (const int scalar : step.scalars)
      if (std::ranges::find(found_.scalars, scalar) == found_.scalars.end())
        found_.scalars.push_back(scalar);
    for (const int slot : stored) {
      constant_[static_cast<std::size_t>(slot)] = true;
      found_.slots.push_back(slot);
    }
    return true;
  }

  const kernel::Plan& plan_;
  std::size_t most_bytes_;
  std::vector<int> writers_;   ///< steps, by slot
  std::vector<bool> constant_; ///< by slot
  ConstantSteps found_;
};

} // namespace

ConstantSteps constant_steps(const kernel::Plan& plan, std::span<const PlannedWork> planned,
                             std::size_t most_bytes) {
  return Finder(plan, most_bytes).run(planned);
}

} // namespace egret::runtime
