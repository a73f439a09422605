#include "support/plan_runner.h"

#include "backend/reference/program_interpreter.h"
#include "backend/reference/reference.h"

#include <cstring>

namespace egret::testing {

using backend::reference::HostArray;

std::vector<HostArray> run_plan(const compiler::Compiled& compiled, const ir::Graph& graph, std::span<HostArray> inputs,
                                backend::Device* device) {
  const kernel::Plan& plan = compiled.plan;
  const auto bindings = backend::reference::bind_inputs(graph, inputs);
  std::vector<std::byte> arena(static_cast<std::size_t>(plan.arena_bytes.value()) + 64, std::byte{0xA5});
  std::byte* base = arena.data() + (64 - reinterpret_cast<std::uintptr_t>(arena.data()) % 64) % 64;
  std::vector<HostArray> outputs(plan.output_slots.size());
  std::vector<void*> memory(plan.slots.size(), nullptr);
  for (std::size_t s = 0; s < plan.slots.size(); ++s) {
    const kernel::Slot& slot = plan.slots[s];
    switch (slot.kind) {
    case kernel::SlotKind::Input:
      memory[s] = inputs[slot.number].bytes.data();
      break;
    case kernel::SlotKind::State:
      memory[s] = inputs[slot.input].bytes.data();
      break;
    case kernel::SlotKind::Output:
      outputs[slot.number] = HostArray(slot.dtype, bindings.values_of(slot.shape));
      std::fill(outputs[slot.number].bytes.begin(), outputs[slot.number].bytes.end(), std::byte{0xA5});
      memory[s] = outputs[slot.number].bytes.data();
      break;
    case kernel::SlotKind::Arena:
      memory[s] = base + slot.offset.value();
      break;
    }
  }
  for (const kernel::Step& step : plan.steps) {
    if (step.kind == kernel::StepKind::Copy) {
      std::memcpy(memory[step.slots[1]], memory[step.slots[0]],
                  static_cast<std::size_t>(bindings.value_of(plan.slots[step.slots[0]].bytes)));
      continue;
    }
    const kernel::KernelEntry& entry = plan.kernels[step.kernel];
    std::vector<void*> pointers;
    for (int s : step.slots)
      pointers.push_back(memory[s]);
    std::vector<std::int64_t> dims;
    for (int d : step.dims)
      dims.push_back(bindings.value_of(plan.dims[d]));
    std::vector<std::uint64_t> scalars;
    for (int s : step.scalars) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, inputs[s].bytes.data(), inputs[s].bytes.size());
      scalars.push_back(bits);
    }
    const kernel::ArgBlock block{pointers.data(), dims.data(), scalars.data(), nullptr, nullptr};
    if (device)
      device->launch(*compiled.artifacts[step.kernel], entry.program, block);
    else
      backend::reference::interpret(entry.program, block, {.workers = 2});
  }
  for (std::size_t o = 0; o < outputs.size(); ++o)
    if (const kernel::Slot& slot = plan.slots[plan.output_slots[o]]; slot.kind == kernel::SlotKind::State)
      outputs[o] = inputs[slot.input];
  return outputs;
}

} // namespace egret::testing
